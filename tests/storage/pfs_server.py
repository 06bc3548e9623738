"""An embedded cluster whose file service the tests of PFS share."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import requests

from openpai_tasks.backends.paddlecloud.pfs.store import PfsStore
from openpai_tasks.storage.location import open_storage
from openpai_tasks.storage.store import StorageSpec
from tests.server.conftest import ServerProcess
from tests.storage import sharing


class PfsServer:
    """Its owner's home is ``/home/<user>`` of the store, and ``home`` on this machine."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pai-pfs-"))
        self._process: ServerProcess | None = ServerProcess(self.folder / "server")
        self.endpoint = f"{self._process.start()['uri']}/paddlecloud"
        login = self._process.owner
        self.user, self.password = login["user"], login["password"]
        self.home = self.folder / "server" / "storage" / "home" / self.user
        self.token = self.sign_in()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_process": None}  # only who has started it can stop it

    def stop(self) -> None:
        assert self._process is not None
        self._process.end()
        shutil.rmtree(self.folder, ignore_errors=True)

    def sign_in(self) -> str:
        form = {"username": self.user, "password": self.password}
        answer = requests.post(f"{self.endpoint}/api-token-auth/", json=form, timeout=60)
        return str(answer.json()["token"])

    def spec(self, **more: Any) -> StorageSpec:
        """What a cluster describes; ``endpoint`` and ``token`` replace those of this server."""
        data = {"endpoint": self.endpoint, "datacenter": "local", "user": self.user, "token": self.token}
        data |= {name: more.pop(name) for name in ("endpoint", "token") if name in more}
        return StorageSpec("lab", "pfs", "pfs", data, user=self.user, **more)

    def store(self, **more: Any) -> PfsStore:
        store = open_storage(self.spec(**more))
        assert isinstance(store, PfsStore)
        return store


def shared() -> PfsServer:
    """The server that all tests share."""
    return sharing.shared("pfs", PfsServer)
