"""Tasks in real containers, of a Docker and a Podman that the tests start."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openpai_tasks.protocol.document.scripts import export_to_logins
from openpai_tasks.server.engines import container_files, task_state
from openpai_tasks.server.engines.base import Engine, RegistryLogin
from openpai_tasks.server.engines.container_program import FOLDER, HOME
from openpai_tasks.server.engines.containers import DockerEngine, PodmanEngine
from openpai_tasks.server.storages import Mount
from tests.leaks import files_with
from tests.needs import needs, require
from tests.ports import free_port
from tests.server.container_engines import IMAGE, REGISTRIES_CONF, Docker, Kit, engine_kit
from tests.server.engines.contract import EngineBench
from tests.server.workshop import Workshop, machine, role, text, until
from tests.ssh_keys import make_key

pytestmark = pytest.mark.root  # dockerd is root's, and limits and owners are nobody else's to set
SECRET = "hunter2-and-more"


@pytest.fixture(scope="module", params=["docker", "podman"])
def kit(request: pytest.FixtureRequest) -> Iterator[Kit]:
    with engine_kit(request.param) as made, pytest.MonkeyPatch.context() as patch:
        for name, value in made.environment.items():
            patch.setenv(name, value)
        yield made


only_docker = pytest.mark.parametrize("kit", ["docker"], indirect=True)


CONTAINERS = {"docker": DockerEngine, "podman": PodmanEngine}


class Bench(EngineBench):
    image = IMAGE

    def __init__(self, kit: Kit, folder: Path) -> None:
        self.kit = kit
        super().__init__(folder, lambda folder: CONTAINERS[kit.name](folder, machine(), grace=4.0))


@pytest.fixture
def bench(kit: Kit, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(kit, tmp_path)
    yield made
    made.engine.close()
    assert kit.containers() == []


def test_task_runs_with_its_image_folders_and_limits(bench: Bench) -> None:
    command = """
        pwd; readlink /proc/self/ns/net; df -m /dev/shm | awk 'END { print $2 }'; cd /sys/fs/cgroup
        head -n 1 memory/memory.limit_in_bytes 2>/dev/null || head -n 1 memory.max
        head -n 1 cpu/cpu.cfs_quota_us 2>/dev/null || head -n 1 cpu.max; cd "$PAI_WORK_DIR"
        echo "$WORDS"; echo "[$PAI_MOUNT_ROOT]$PAI_WORK_DIR"; echo ${VIRTUAL_ENV-none}
        echo made > here; echo kept > "${PAI_MOUNT_ROOT-}/mnt/data/file"; cat /bin/busybox | wc -c"""
    words = "two\nlines 'quoted' $HOME"
    mounts = (Mount("/mnt/data", "folder", str(bench.folder / "storage/alice"), is_private=True),)
    end = bench.run(
        "uid",
        command,
        environment={"WORDS": words},
        mounts=mounts,
        container={"memory_mb": 64, "shm_mb": 32},
    )
    assert (end.user_code, end.platform_code, end.reason) == (0, None, ""), bench.log("uid", "all")
    found = bench.log("uid").splitlines()
    assert found[:3] == ["/usr/local/pai/work", os.readlink("/proc/self/ns/net"), "32"]
    assert found[3] == str(64 * 2**20)
    assert found[4].startswith("100000")
    assert found[5:7] == words.splitlines()
    assert found[7:9] == ["[]/usr/local/pai/work", "none"]
    assert found[9] == str(Path(shutil.which("busybox") or "").stat().st_size)
    assert text(bench.folder / "uid/work/here") == "made\n"
    assert text(bench.folder / "storage/alice/file") == "kept\n"


def test_task_that_uses_too_much_memory_is_killed_with_a_reason(bench: Bench) -> None:
    end = bench.run("uid", "x=a; while :; do x=$x$x; done", container={"memory_mb": 16})
    assert (end.user_code, end.platform_code) == (137, -1200)
    assert end.reason.startswith("it used more than the 16 MB of memory that it asked for (it reached 1")
    assert end.peak_memory_mb in (15, 16) and end.cpu_seconds


def test_image_that_cannot_be_pulled_fails_the_task_with_one_line(bench: Bench) -> None:
    end = bench.run("uid", "true", image="127.0.0.1:1/no/such:image")
    assert (end.user_code, end.platform_code) == (None, 254)
    assert end.reason.startswith("its image 127.0.0.1:1/no/such:image could not be pulled: ")
    assert "\n" not in end.reason and "refused" in end.reason
    assert "Pulling" in bench.notes("uid") and "Pulled" not in bench.notes("uid")


def test_invalid_image_name_is_never_passed_to_the_program(bench: Bench) -> None:
    end = bench.run("uid", "true", image="--privileged")
    assert end.reason == "could not be started: invalid image name '--privileged'"


def test_image_without_a_shell_is_reported(bench: Bench) -> None:
    bench.kit.run("import", "-", "pai/empty:1", input=_empty_tar())
    end = bench.run("uid", "true", image="pai/empty:1")
    assert (end.user_code, end.platform_code) == (None, -1203)
    assert end.reason.startswith("its container did not start: ") and "/bin/sh" in end.reason


def _empty_tar() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("nothing"))
    return made.getvalue()


def test_a_container_whose_runner_was_killed_is_removed(bench: Bench) -> None:
    one = bench.start("uid", "echo ready; sleep 100")
    bench.begun("uid")
    os.kill(task_state.read_started(one.folder)[0], signal.SIGKILL)
    end = until(lambda: bench.end("uid"))
    assert (end.user_code, end.platform_code) == (None, 256)
    assert end.reason == "lost its runner: it was killed"
    assert bench.kit.containers() == []
    assert not (one.folder / "runtime").exists()


def test_a_container_whose_supervisor_was_killed_is_removed(bench: Bench) -> None:
    one = bench.start("uid", "echo ready; sleep 100")
    bench.begun("uid")
    os.kill(until(lambda: task_state.read_started(one.folder).group), signal.SIGKILL)
    end = until(lambda: bench.end("uid"))
    assert (end.user_code, end.platform_code) == (None, 256)
    assert end.reason == "lost its supervisor, which was killed; its container was removed"


def test_new_engine_removes_leftover_containers_of_its_own_home_only(bench: Bench, tmp_path: Path) -> None:
    def leave(name: str, home: Path) -> None:
        labels = [f"--label={HOME}={home}", f"--label={FOLDER}={home / 'gone'}"]
        bench.kit.run("run", "--detach", "--name", name, "--network=host", *labels, IMAGE, "sleep", "100")

    leave("left", tmp_path)
    leave("foreign", tmp_path / "other")
    bench.engine.close()
    bench.open()
    names = bench.kit.run("ps", "--all", "--format", "{{.Names}}").split()
    bench.kit.run(*bench.kit.dialect.removal, "foreign")
    assert names == ["foreign"]


def command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace")
    except OSError:  # it has just ended
        return ""


def test_secrets_are_neither_visible_from_outside_nor_kept(bench: Bench) -> None:
    login = RegistryLogin("alice", SECRET, "example.com")
    command = f"echo ready; test {SECRET} = {SECRET}; sleep 0.3; until [ -e gate ]; do sleep 0.05; done"
    one = bench.start("uid", command, environment={"TOKEN": SECRET}, container={"login": login})
    bench.begun("uid")
    seen = bench.kit.run("inspect", f"pai-{one.uid}") + text(one.folder / "container.json")
    seen += "".join(map(command_line, Path("/proc").glob("[0-9]*")))
    assert not (one.folder / "registry").exists()
    (one.folder / "work/gate").touch()
    assert until(lambda: bench.end("uid")).user_code == 0
    assert SECRET not in seen
    assert files_with(SECRET, one.folder) == []
    assert SECRET not in repr(login) + repr(bench.launch("x", SECRET, container={"login": login}))


def test_files_created_by_root_get_the_owner_of_the_folder(bench: Bench) -> None:
    work = bench.folder / "uid/work"
    work.mkdir(parents=True)
    os.chown(work, 1234, 1234)
    assert bench.run("uid", "mkdir sub; echo made > sub/file").user_code == 0
    assert [(work / name).stat().st_uid for name in ("sub", "sub/file")] == [1234, 1234]


@only_docker
def test_a_container_outlives_its_daemon(bench: Bench, kit: Docker) -> None:
    one = bench.start("uid", "echo ready; until [ -e gate ]; do sleep 0.05; done; echo more; exit 5")
    bench.begun("uid")  # what it prints while there is no daemon is lost
    words = ("inspect", "--format", "{{.State.Running}}", f"pai-{one.uid}")
    until(lambda: kit.run(*words) == "true\n")  # a daemon that dies before it knows that has lost it
    kit.kill()
    kit.start()
    until(lambda: "DaemonLost" in bench.notes("uid"))
    (one.folder / "work/gate").touch()
    end = until(lambda: bench.end("uid"))
    assert (end.user_code, end.platform_code) == (5, None), (end, bench.log("uid", "stderr"))
    assert bench.log("uid").splitlines()[0] == "ready"


@pytest.fixture
def registry(kit: Kit, tmp_path: Path) -> Iterator[str]:
    """Start a registry with one image that only alice may pull; yield its address."""
    require("docker-registry", "htpasswd")
    port = free_port()
    address = f"127.0.0.1:{port}"
    users, conf = tmp_path / "users", tmp_path / "registry.yml"
    subprocess.run(["htpasswd", "-Bbc", users, "alice", SECRET], check=True, capture_output=True)
    storage = {"filesystem": {"rootdirectory": str(tmp_path / "images")}}
    auth = {"htpasswd": {"realm": "test", "path": str(users)}}
    conf.write_text(json.dumps({"version": 0.1, "storage": storage, "http": {"addr": address}, "auth": auth}))
    argv = ["docker-registry", "serve", str(conf)]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
        if kit.name == "podman":
            (kit.folder / "registries.conf").write_text(REGISTRIES_CONF.format(address=address))
        _push(kit, tmp_path, address)
        yield address
    finally:
        process.terminate()
        process.wait(60)


def _push(kit: Kit, folder: Path, address: str) -> None:
    (folder / "own").mkdir()
    login = RegistryLogin("alice", SECRET, f"http://{address}/v2/")
    (folder / "own/config.json").write_text(container_files.registry_config(login))
    known = {"DOCKER_CONFIG": str(folder / "own"), "REGISTRY_AUTH_FILE": str(folder / "own/config.json")}
    kit.run("tag", IMAGE, f"{address}/own/image:1")
    kit.run("push", f"{address}/own/image:1", environment=known)
    kit.run("rmi", f"{address}/own/image:1")


def test_an_image_is_pulled_with_the_credentials_of_the_document(bench: Bench, registry: str) -> None:
    image = f"{registry}/own/image:1"
    wrong = bench.run(
        "wrong", "true", image=image, container={"login": RegistryLogin("alice", "no", registry)}
    )
    none = bench.run("none", "true", image=image)
    login = RegistryLogin("alice", SECRET, f"https://{registry}/v2/")
    right = bench.run("right", "echo pulled", image=image, container={"login": login})
    bench.kit.run("rmi", image)
    assert [end.platform_code for end in (wrong, none, right)] == [254, 254, None]
    assert right.user_code == 0 and bench.log("right") == "pulled\n"
    assert list(bench.notes("right")) == ["Pulling", "Pulled"]
    assert SECRET not in wrong.reason + none.reason


# With the scheduler


@pytest.fixture
def cluster(kit: Kit, tmp_path: Path) -> Iterator[Workshop]:
    class Containers(Workshop):
        def make_engine(self) -> Engine:
            return CONTAINERS[kit.name](self.folder / "jobs", self.machine, grace=4.0)

    made = Containers(tmp_path, machine(), {"default": machine().resources}, False)
    yield made
    made.clean()


def submit(cluster: Workshop, name: str, command: str, image: str = IMAGE, **more: Any) -> str:
    prerequisite = {"type": "dockerimage", "name": "image", "uri": image}
    return cluster.submit(name, {"main": role(command)}, prerequisites=[prerequisite], **more)


def test_plugins_and_secrets_work_in_containers(cluster: Workshop) -> None:
    plugin = {
        "plugin": "cmd",
        "parameters": {"preCommands": ["echo before <% $secrets.word %>"], "postCommands": ["echo after"]},
    }
    extras = {"com.microsoft.pai.runtimeplugin": [plugin]}
    key = submit(cluster, "job", 'echo "$PAI_JOB_NAME"', extras=extras, secrets={"word": SECRET})
    assert cluster.wait(key).state == "SUCCEEDED"
    assert cluster.output(key) == f"before {SECRET}\nalice~job\nafter\n"


def test_missing_sshd_in_the_image_is_reported(cluster: Workshop) -> None:
    key_line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ4wUq8gBqdWdlzWkq4yZmXQnO8r5vXKnSpF3hV1Yx2b"
    plugin = {"plugin": "ssh", "parameters": {"userssh": {"type": "custom", "value": key_line}}}
    extras = {"com.microsoft.pai.runtimeplugin": [plugin]}
    key = submit(cluster, "job", "echo on", extras=extras)
    cluster.wait(key)
    assert cluster.output(key) == "on\n"
    assert "the image has no sshd" in cluster.reasons(key)["SshNotServed"]


ACCOUNTS = b"root:x:0:0::/root:/bin/sh\nsshd:x:100:65534::/run/sshd:/bin/false\n"


@needs("ssh", "sshd")
def test_ssh_login_works_if_the_image_has_sshd(cluster: Workshop, kit: Kit, tmp_path: Path) -> None:
    sshd, sftp = Path("/usr/sbin/sshd"), Path("/usr/lib/openssh/sftp-server")
    accounts = {"/etc/passwd": ACCOUNTS, "/etc/shadow": b"root:!:1::::::\n", "/etc/group": b"root:x:0:\n"}
    kit.make_image("pai/sshd:1", {str(sshd): sshd, str(sftp): sftp, **accounts})
    pair = make_key(tmp_path / "key")
    user = {"type": "custom", "value": text(tmp_path / "key.pub")}
    extras = {"com.microsoft.pai.runtimeplugin": [{"plugin": "ssh", "parameters": {"userssh": user}}]}
    added = export_to_logins({"MINE": "it's mine"})
    command = f'export MINE="it\'s mine"; {added}; touch begun; until [ -e gate ]; do sleep 0.05; done'
    key = submit(cluster, "job", command, "pai/sshd:1", extras=extras)
    until(lambda: "SshReady" in cluster.reasons(key))
    one = cluster.tasks(key)[0]
    quiet = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
    argv = ["ssh", "-F", "none", "-i", str(pair), *quiet, "-p", str(one.ports["ssh"][0]), "root@127.0.0.1"]
    until(lambda: (one.folder / "work/begun").exists())
    words = "echo $PAI_JOB_NAME $MINE; pwd"
    ran = subprocess.run([*argv, words], capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.returncode) == ("alice~job it's mine\n/usr/local/pai/work\n", 0), ran.stderr
    (one.folder / "work/gate").touch()  # from here: the container's end would cut off the session
    assert cluster.wait(key).state == "SUCCEEDED"
    assert (one.folder / "ssh/ready").exists()


@only_docker
def test_events_of_a_job_report_the_image_pull(cluster: Workshop) -> None:
    job = cluster.wait(submit(cluster, "job", "true", image="127.0.0.1:1/none"))
    assert (job.state, job.exit_code) == ("FAILED", 254)
    assert cluster.reasons(job.key)["Pulling"].startswith("pulling the image 127.0.0.1:1/none")
    assert "ImageNotUsed" not in cluster.reasons(job.key)


# Whole commands


@pytest.fixture(scope="module")
def shell(kit: Kit, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from tests.conftest import make_shell

    made = make_shell(tmp_path_factory.mktemp("shell"))
    made.environment |= {**kit.environment, "INVOKE_OPENPAI_LOCAL_ENGINE": kit.name}
    made.ok("cluster.start")
    yield made
    made.ok("cluster.stop")


def test_commands_run_jobs_in_the_image_they_name(shell: Any) -> None:
    hello = shell.inv("job.sub", "echo hello; cat /etc/os-release || exit 3", "--image", IMAGE, "--follow")
    assert hello.code == 3 and "hello" in hello.out


@only_docker
def test_commands_report_why_a_container_failed(shell: Any) -> None:
    small = ("--image", IMAGE, "--memoryMB", "16", "--follow", "--job-name", "greedy")
    greedy = shell.inv("job.sub", "x=a; while :; do x=$x$x; done", *small)
    assert greedy.code == 137
    assert "more than the 16 MB of memory" in greedy.out + greedy.err
    wrong = shell.inv("job.sub", "true", "--image", "127.0.0.1:1/none", "--follow")
    assert wrong.code == 254
    assert "127.0.0.1:1/none could not be pulled" in wrong.out + wrong.err


def test_commands_stop_a_job_and_its_container(shell: Any, kit: Kit) -> None:
    shell.ok("job.sub", "sleep 100", "--image", IMAGE, "--job-name", "long")
    until(kit.containers)
    shell.ok("job.stop", "long")
    shell.inv("job.wait", "long")
    assert kit.containers() == []
