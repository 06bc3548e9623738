"""Images built, listed, checked and pushed by real engines, and an interactive container of one."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Shell
from tests.needs import needs, require
from tests.ports import free_port
from tests.server.container_engines import IMAGE, REGISTRIES_CONF, Kit, engine_kit
from tests.server.engines.test_containers import ACCOUNTS
from tests.server.ssh_clients import answers

SSHD, SFTP = Path("/usr/sbin/sshd"), Path("/usr/lib/openssh/sftp-server")


@pytest.fixture(scope="module", params=[pytest.param("docker", marks=pytest.mark.root), "podman"])
def kit(request: pytest.FixtureRequest) -> Iterator[Kit]:
    with engine_kit(request.param) as made:
        yield made


only_docker = pytest.mark.parametrize("kit", [pytest.param("docker", marks=pytest.mark.root)], indirect=True)


@pytest.fixture
def engine_shell(shell: Shell, kit: Kit) -> Shell:
    """A shell whose project uses the engine."""
    shell.environment.update(kit.environment)
    shell.environment["INVOKE_OPENPAI_CONTAINER_ENGINE"] = kit.name
    shell.environment["DOCKER_BUILDKIT"] = "0"
    return shell


@pytest.fixture
def registry(kit: Kit, tmp_path: Path) -> Iterator[str]:
    """Start a registry that accepts everything; yield its address."""
    require("docker-registry")
    port = free_port()
    conf = tmp_path / "registry.yml"
    conf.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {tmp_path}/kept}}}}\n"
        f"http: {{addr: 127.0.0.1:{port}}}\nlog: {{level: error}}\n"
    )
    if kit.name == "podman":
        place = Path(kit.environment["CONTAINERS_REGISTRIES_CONF"])
        place.write_text(REGISTRIES_CONF.format(address=f"127.0.0.1:{port}"))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(["docker-registry", "serve", str(conf)], **quiet)
    try:
        limit = time.monotonic() + 60
        while not answers(port):
            assert process.poll() is None and time.monotonic() < limit
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


def test_an_image_is_built_listed_and_pushed(engine_shell: Shell, registry: str) -> None:
    (engine_shell.project / "Dockerfile").write_text(
        f"FROM {IMAGE}\nARG WORD\nCOPY tasks.py /\nENV WORD=$WORD\n"
    )
    name = f"{registry}/own/built"
    built = engine_shell.inv("container.build", "--tag", f"{name}:1", "--build-arg", "WORD=two words")
    assert built.code == 0, built
    (row,) = engine_shell.ok("container.images", name, "-o", "json").json()
    assert (row["repository"], row["tag"]) == (name, "1")
    assert row["id"] and row["space"]
    assert row["created"][:4].isdecimal()
    pushed = engine_shell.inv("container.push", f"{name}:1")
    assert pushed.code == 0, pushed
    refused = engine_shell.inv("container.push", f"{registry}/own/none:1")
    assert refused.code == 120
    assert f" login {registry}`" in refused.err


def test_a_failed_build_is_reported_in_one_line(engine_shell: Shell) -> None:
    (engine_shell.project / "Dockerfile").write_text(f"FROM {IMAGE}\nCOPY none /\n")
    ran = engine_shell.inv("container.build", "--tag", "lab/none")
    assert ran.code == 120 and "Traceback" not in ran.err
    assert "cannot build lab/none (it exited with " in ran.err


def test_an_image_is_checked_with_its_own_programs(engine_shell: Shell, kit: Kit) -> None:
    ran = engine_shell.inv("container.check", IMAGE, "-o", "json")
    found = {row["program"]: row for row in ran.json()}
    assert {name for name, row in found.items() if row["there"]} == {"sh", "sha256sum", "tar"}
    assert found["tar"]["version"].startswith("1.")
    assert (ran.code, f"{IMAGE} lacks bash, curl, sshd" in ran.err) == (120, True)
    programs = {f"/bin/{name}": shutil.which(name) for name in ("bash", "curl")}
    kit.make_image(
        "pai/full:1", {name: Path(path or "") for name, path in programs.items()} | {str(SSHD): SSHD}
    )
    ran = engine_shell.inv("container.check", "pai/full:1", "-o", "json")
    found = {row["program"]: row for row in ran.json()}
    assert ran.code == 0, ran
    assert found["bash"]["version"] and found["curl"]["version"] and found["sshd"]["there"]
    assert (found["python3"]["there"], found["python3"]["required"]) == (False, False)


def test_a_missing_image_is_reported(engine_shell: Shell) -> None:
    ran = engine_shell.inv("container.check", "127.0.0.1:1/none:1")
    assert ran.code == 120
    assert ran.err.splitlines()[-1].startswith(
        f"error: {engine_shell.environment['INVOKE_OPENPAI_CONTAINER_ENGINE']}"
    )


@only_docker
@needs("sshd")
def test_interactive_container_runs_in_its_image(engine_shell: Shell, kit: Kit) -> None:
    accounts = {"/etc/passwd": ACCOUNTS, "/etc/shadow": b"root:!:1::::::\n", "/etc/group": b"root:x:0:\n"}
    smi = {"/bin/nvidia-smi": b"#!/bin/sh\necho 0\n"}
    kit.make_image("pai/sshd:1", {str(SSHD): SSHD, str(SFTP): SFTP, **accounts, **smi})
    small = {"CPU": "1", "MEMORYMB": "128", "LOCAL_ENGINE": "docker", "IMAGE": "pai/sshd:1"}
    engine_shell.environment.update({f"INVOKE_OPENPAI_{name}": value for name, value in small.items()})
    flags = ("-j", "boxed", "--gpu", "1", "--idle-after", "1s", "--timeout", "10m")
    ran = engine_shell.inv("container.start", *flags, input="cat /tmp/.pai-container/deadline; pwd; exit 5\n")
    assert ran.code == 5, ran
    assert ran.out.splitlines()[0].isdecimal() and "/usr/local/pai/work" in ran.out
    extended = engine_shell.ok("container.extend", "boxed", "--timeout", "5h", "-o", "json").json()
    assert extended == [{"container": "main-0", "duration": 5 * 3600, "extended_by": "ssh"}]
    limit = time.monotonic() + 60
    while (
        "warning: its GPUs have been idle"
        not in engine_shell.inv("container.ssh", "boxed", input="true\n").err
    ):
        assert time.monotonic() < limit
    engine_shell.ok("container.stop")
    assert "error" not in engine_shell.inv("job.wait", "boxed").out


@only_docker
def test_an_image_without_sshd_is_reported_at_once(engine_shell: Shell) -> None:
    small = {"CPU": "1", "MEMORYMB": "64", "LOCAL_ENGINE": "docker", "IMAGE": IMAGE}
    engine_shell.environment.update({f"INVOKE_OPENPAI_{name}": value for name, value in small.items()})
    ran = engine_shell.inv("container.start", "-j", "bare")
    assert ran.code == 121, ran
    assert "the image has no sshd, add openssh-server to it; the job continues" in ran.err
    extended = engine_shell.ok("container.extend", "bare", "--timeout", "5h", "-o", "json").json()
    assert extended[0]["extended_by"] == "storage"
    engine_shell.ok("container.stop", "bare")
    engine_shell.inv("job.wait", "bare")
