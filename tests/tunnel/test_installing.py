"""The wheel of this package that `cluster.add --install` sends."""

import base64
import hashlib
import io
import zipfile
from pathlib import Path

import openpai_tasks
from openpai_tasks.tunnel.installing import make_wheel

PACKAGE = Path(openpai_tasks.__file__).parent


def test_the_wheel_has_every_file_of_the_package_with_its_checksum():
    with zipfile.ZipFile(io.BytesIO(make_wheel())) as wheel:
        names = set(wheel.namelist())
        (about,) = {name.partition("/")[0] for name in names if ".dist-info/" in name}
        for line in wheel.read(f"{about}/RECORD").decode().splitlines()[:-1]:
            name, digest, size = line.rsplit(",", 2)
            content = wheel.read(name)
            found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={found}", len(content)), name
        points = wheel.read(f"{about}/entry_points.txt").decode()
    ours = {f"openpai_tasks/{path.relative_to(PACKAGE).as_posix()}" for path in PACKAGE.rglob("*.py")}
    assert ours | {f"{about}/METADATA", f"{about}/WHEEL"} <= names
    assert "pai = " in points and not any("__pycache__" in name for name in names)
