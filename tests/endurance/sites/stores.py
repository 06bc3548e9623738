"""Jobs as processes, and storages on real servers, which one run starts once."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tests.endurance.sites.base import Site
from tests.endurance.store_servers import SERVERS

if TYPE_CHECKING:
    from tests.endurance.world import World


SETTINGS = ("credentials.yaml", "local/choices.yaml")


class Stores(Site):
    kind = "stores"

    def __init__(self) -> None:
        self._settings: dict[str, str] | None = (
            None  # files of a home folder in which the storages were added
        )

    def missing(self) -> str:
        return "" if SERVERS else "it has no server of a storage"

    def start(self, world: World) -> None:
        world.environment |= {"INVOKE_OPENPAI_LOCAL_ENGINE": "process"}
        if self._settings is None:
            self._settings = self._start_servers(world)
        for folder in (world.home, world.home / "local"):
            folder.mkdir(mode=0o700, exist_ok=True)
        for name, text in self._settings.items():
            (world.home / name).write_text(text)
            (world.home / name).chmod(0o600)
        for server in SERVERS.values():
            server.enter(world)

    def _start_servers(self, world: World) -> dict[str, str]:
        for server in SERVERS.values():
            server.start()
            atexit.register(server.stop)
            if not server.flags:
                continue
            world.environment["OPENPAI_STORAGE_PASSWORD"] = server.secret
            added = world.pai("storage.add", server.name, *server.flags, "-a", "local")
            assert added.returncode == 0, (server.name, added.stderr)
        made = {name: world.home / name for name in SETTINGS}
        return {name: path.read_text() for name, path in made.items() if path.exists()}

    def stop_cluster(self, world: World) -> str:
        for server in SERVERS.values():
            server.leave(world)
        return super().stop_cluster(world)

    def leftovers(self, world: World) -> Iterator[str]:
        for server in SERVERS.values():
            yield from server.leftovers(world)
            server.clear(world.folder.parent.name)
