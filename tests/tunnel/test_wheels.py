"""The wheels that `cluster.add --install` sends."""

import base64
import hashlib
import io
import json
import os
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

import openpai_tasks
from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.tunnel.wheels import WHEEL, Pip, Target, last_error, make_wheel, not_found
from tests.tunnel import small_wheels
from tests.tunnel.small_wheels import python_without_ensurepip, require_only

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


def target(interpreter, platforms, machine):
    version = f"3.{interpreter[3:]}"
    environment = {
        "python_version": version,
        "python_full_version": f"{version}.1",
        "platform_machine": machine,
        "sys_platform": "linux",
    }
    return Target(interpreter, interpreter, platforms, environment)


GLIBC = target("cp310", ("manylinux_2_17_x86_64", "manylinux2014_x86_64", "linux_x86_64"), "x86_64")
MUSL = target("cp312", ("musllinux_1_2_aarch64", "musllinux_1_1_aarch64", "linux_aarch64"), "aarch64")


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder with the packages that pip finds here."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name, value in {"CONFIG_FILE": os.devnull, "NO_INDEX": "1", "FIND_LINKS": str(folder)}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    return folder


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (GLIBC, {"compiled-1.0-cp310-cp310-manylinux2014_x86_64.whl", "old-1.0-py3-none-any.whl"}),
        (MUSL, {"compiled-1.0-cp312-cp312-musllinux_1_1_aarch64.whl", "source-1.0-py3-none-any.whl"}),
    ],
)
def test_requirements_are_those_of_the_other_machine(index, tmp_path, monkeypatch, there, expected):
    for tag in ("cp310-cp310-manylinux2014_x86_64", "cp312-cp312-musllinux_1_1_aarch64", "cp310-cp310-win32"):
        small_wheels.add_wheel(index, "compiled", tag)
    small_wheels.add_wheel(index, "old")
    small_wheels.add_source(index, "source")
    some = ("old; python_version < '3.11'", "source; platform_machine == 'aarch64'")
    monkeypatch.setattr(sys, "path", [require_only(tmp_path, "compiled", *some), *sys.path])
    sent = Pip(tmp_path).fetch(make_wheel(), there)
    assert {*sent} == {WHEEL, *expected}


def test_a_package_without_a_wheel_for_that_machine_is_named(index, tmp_path, monkeypatch):
    small_wheels.add_wheel(index, "compiled", "cp312-cp312-musllinux_1_1_aarch64")
    monkeypatch.setattr(sys, "path", [require_only(tmp_path, "compiled>=1"), *sys.path])
    expected = "no wheel of compiled>=1 for cp310 on manylinux_2_17_x86_64"
    with pytest.raises(ConfigError, match=expected):
        Pip(tmp_path).fetch(make_wheel(), GLIBC)


@pytest.mark.parametrize("has_ensurepip", [True, False])
def test_an_environment_without_pip_takes_that_of_its_python(tmp_path, monkeypatch, has_ensurepip):
    if has_ensurepip:
        pytest.importorskip("ensurepip", reason="missing packages: python3-venv")
    else:
        monkeypatch.setattr(sys, "executable", str(python_without_ensurepip(tmp_path / "python")))
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    pip = Pip(tmp_path)
    if has_ensurepip:
        with zipfile.ZipFile(io.BytesIO(pip.pack())) as archive:
            assert {"pip/__main__.py", "pip/_vendor/packaging/tags.py"} <= {*archive.namelist()}
    else:
        assert pip.pack() == b""
        with pytest.raises(ConfigError, match="there is no pip here"):
            pip.fetch(b"", GLIBC)


@pytest.mark.parametrize("printed", ["", "Welcome\n", "[]", '{"abi": 1}', '{"interpreter": "cp310"}'])
def test_a_platform_that_is_not_described_is_refused(printed):
    with pytest.raises(PaiError, match="did not describe its platform"):
        Target.read(printed)


def test_words_that_pip_would_read_as_options_are_refused():
    found = {
        "interpreter": "cp310",
        "abi": "cp310",
        "platforms": ["x --index-url=http://x"],
        "environment": {},
    }
    with pytest.raises(PaiError, match="did not describe its platform"):
        Target.read(json.dumps(found))


@pytest.mark.parametrize("more", ["", " (from openpai-tasks)", '; python_version < "4"'])
def test_the_requirement_that_pip_does_not_find_is_read(more):
    assert not_found(f"WARNING: x\nERROR: No matching distribution found for a<4,>=2{more}\n") == "a<4,>=2"


def test_errors_of_pip_are_shown_without_the_login_to_an_index():
    text = "ERROR: 401 Client Error for url: https://ann:secret@host/simple/\nWARNING: more\n"
    assert last_error(text) == "401 Client Error for url: https://host/simple/"
