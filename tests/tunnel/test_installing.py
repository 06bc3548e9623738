"""The wheel of this package that `cluster.add --install` sends."""

import base64
import hashlib
import io
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("is_alone", [False, True])
def test_the_metadata_of_a_checkout_do_not_hide_those_of_the_installation(tmp_path, monkeypatch, is_alone):
    about = tmp_path / "openpai_tasks.egg-info"
    about.mkdir()
    about.joinpath("PKG-INFO").write_text(
        "Metadata-Version: 2.1\nName: openpai-tasks\nVersion: 0.0.1\n\nText\n"
    )
    about.joinpath("entry_points.txt").write_text("[console_scripts]\npai = egg\n")
    about.joinpath("requires.txt").write_text("alone>=1\n\n[extra]\nmore\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *([] if is_alone else sys.path)])
    with zipfile.ZipFile(io.BytesIO(make_wheel())) as wheel:
        wheel.extractall(tmp_path / "wheel")
    (sent,) = metadata.distributions(path=[str(tmp_path / "wheel")])
    of_egg = ["alone>=1", 'more; extra == "extra"']
    assert sent.requires and (sent.requires == of_egg) == is_alone
    assert sent.version == openpai_tasks.__version__
    (pai,) = sent.entry_points.select(group="console_scripts", name="pai")
    assert (pai.value == "egg") == is_alone
