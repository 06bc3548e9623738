"""Images on nodes of Slurm: real containers of podman, and the command lines of Apptainer and Pyxis."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.server.engines.base import ContainerSpec, Engine, Launch, RegistryLogin
from openpai_tasks.server.engines.container_program import BindMount
from openpai_tasks.server.engines.runner import slurm_task
from openpai_tasks.server.engines.slurm import images
from openpai_tasks.server.engines.slurm.engine import SlurmEngine
from openpai_tasks.server.engines.slurm.images import ImageProgram, ImageRunner
from openpai_tasks.server.storages import Mount
from tests.needs import needs
from tests.server.container_engines import IMAGE, Kit, engine_kit
from tests.server.engines.slurm_cluster import SlurmCluster, slurm_cluster
from tests.server.workshop import Workshop, machine, role, until

SECRET = "hunter22"
APPTAINER, PYXIS = ImageProgram("apptainer", "/bin/apptainer"), ImageProgram("pyxis", "/usr/bin/srun")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as cluster, pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.environment.items():
            patch.setenv(name, value)
        yield cluster


# An ordinary user's podman needs a runtime folder, which jobs do not share with the tests.
@pytest.fixture(scope="module", params=[pytest.param("podman", marks=pytest.mark.root)])
def kit(request: pytest.FixtureRequest) -> Iterator[Kit]:
    with engine_kit(request.param) as made, pytest.MonkeyPatch.context() as patch:
        for name, value in made.environment.items():
            patch.setenv(name, value)
        yield made


class ImageWorkshop(Workshop):
    def make_engine(self) -> Engine:
        return SlurmEngine(self.folder / "jobs", self.grace, {"slurm-images": "podman"})


@pytest.fixture
def lab(slurm: SlurmCluster, kit: Kit, tmp_path: Path) -> Iterator[ImageWorkshop]:
    made = ImageWorkshop(tmp_path, machine(), {}, enforce=False)
    yield made
    made.clean()
    until(lambda: kit.containers() == [])


def image(name: str = IMAGE, **more: object) -> dict[str, Any]:
    return {"prerequisites": [{"type": "dockerimage", "name": "image", "uri": name}], **more}


def test_a_job_runs_in_its_image_with_variables_folders_and_shared_memory(lab: ImageWorkshop) -> None:
    peer = 'echo $PAI_TASK_INDEX $(test -n "$PAI_HOST_IP_main_1" && echo known) $SLURM_NTASKS'
    script = (
        f"{peer}; pwd; ls /bin/busybox; df -m /dev/shm | awk 'END {{ print $2 }}'; echo [$PAI_MOUNT_ROOT];"
        "echo $PAI_TASK_INDEX > /mnt/data/$PAI_TASK_INDEX; echo made > here; exit $PAI_TASK_INDEX"
    )
    main = role(
        script, instances=2, extraContainerOptions={"shmMB": 32}, completion={"minFailedInstances": -1}
    )
    extras = {"storages": [{"name": "home", "mountPath": "/mnt/data"}]}
    job = lab.run("gang", {"main": main}, **image(extras=extras))
    rest = ["/usr/local/pai/work", "/bin/busybox", "32", "[]"]
    for number in range(2):
        shown = lab.output(job.key, "all", number).splitlines()
        assert shown == [f"{number} known 2", *rest], lab.tasks(job.key)[number].diagnostics
        assert (lab.folder / "storage" / "alice" / str(number)).read_text() == f"{number}\n"
        assert (lab.tasks(job.key)[number].folder / "work" / "here").read_text() == "made\n"
    assert [task.user_exit_code for task in lab.tasks(job.key)] == [0, 1]


@needs("ps")
def test_a_stopped_container_can_end_by_itself_and_leaves_no_secret(
    lab: ImageWorkshop, slurm: SlurmCluster
) -> None:
    secret = "echo <% $secrets.word %> >/dev/null"
    script = f"trap 'echo saved; exit 0' TERM; {secret}; echo up; while :; do sleep 0.1; done"
    key = lab.submit("stopped", script, **image(secrets={"word": SECRET}))
    until(lambda: lab.tasks(key) and "up" in _output(lab, key))
    listed = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    id = (lab.tasks(key)[0].folder / "slurm").read_text()
    assert SECRET not in listed + slurm.run("scontrol", "write", "batch_script", id, "-")
    usage = lab.tasks(key)[0].folder / "logs" / "usage"
    until(lambda: usage.exists() and "cpu=" in usage.read_text())
    lab.state.set_execution(key, "STOP")
    assert lab.wait(key).state == "STOPPED"
    assert lab.output(key) == "up\nsaved\n"
    assert not (lab.tasks(key)[0].folder / "runtime").exists()


def _output(lab: ImageWorkshop, key: str) -> str:
    try:
        return lab.output(key)
    except FileNotFoundError:
        return ""


def test_an_image_that_cannot_be_pulled_is_the_reason(lab: ImageWorkshop) -> None:
    job = lab.run("missing", "true", **image("127.0.0.1:1/no/such:image"))
    assert job.state == "FAILED"
    assert "its image 127.0.0.1:1/no/such:image could not be pulled" in lab.tasks(job.key)[0].diagnostics
    assert "Pulling" in lab.reasons(job.key)


def test_podman_gets_the_gpus_that_slurm_has_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_STEP_GPUS", "2,3")
    (tmp_path / "runtime").mkdir()
    (tmp_path / "container.json").write_text('{"options": ["--x"]}')
    slurm_task.add_to_container({"CUDA_VISIBLE_DEVICES": "0,1", "PAI_WORDS": "two words"})
    options = json.loads((tmp_path / "container.json").read_text())["options"]
    assert options[:5] == ["--x", "--device", "nvidia.com/gpu=2", "--device", "nvidia.com/gpu=3"]
    assert (tmp_path / "runtime" / "environment").read_text() == "export PAI_WORDS='two words'\n"


# Programs that are not installed here


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    return Launch(
        uid="uid",
        user="alice",
        folder=tmp_path / "task",
        scripts={"command": f"echo {SECRET}"},
        environment={"WORDS": f"two words {SECRET}"},
        image="python:3",
        mounts=(Mount("/mnt/data", "folder", str(tmp_path / "storage" / "alice"), is_private=True),),
        container=ContainerSpec(cpu=2, memory_mb=100, gpu=1, login=RegistryLogin("ann", SECRET)),
    )


def test_apptainer_mounts_the_folders_and_runs_the_entry_script(launch: Launch, tmp_path: Path) -> None:
    ready = ImageRunner(APPTAINER, "/home", 1.0).prepare(launch)
    task, base = launch.folder, "/usr/local/pai"
    assert ready.scripts["command"].split() == [
        *("exec", "/bin/apptainer", "exec", "--cleanenv", "--no-home", "--writable-tmpfs", "--nv"),
        *("--bind", f"{task}/work:{base}/work", "--bind", f"{task}/notes:{base}/notes"),
        *("--bind", f"{task}/runtime:{base}/runtime:ro", "--bind", f"{tmp_path}/storage/alice:/mnt/data"),
        *("docker://python:3", "/bin/sh", f"{base}/runtime/entry", "uid"),
    ]
    written = (task / "runtime" / "environment").read_text()
    assert f"export WORDS='two words {SECRET}'" in written and f"export HOME={base}/work" in written
    assert ready.environment["APPTAINER_DOCKER_PASSWORD"] == SECRET
    assert "WORDS" not in ready.environment and (ready.shared, ready.mounts) == ({}, ())


def test_pyxis_starts_a_step_on_the_same_node(launch: Launch, tmp_path: Path) -> None:
    ready = ImageRunner(PYXIS, "/home", 1.0).prepare(replace(launch, image="lab.org:5000/torch:2", mounts=()))
    last = next(line for line in ready.scripts["command"].splitlines() if line.startswith("setsid"))
    words = last.removesuffix(" &").split()
    assert words[:4] == ["setsid", "/usr/bin/srun", "--job-name=pai-uid", '--nodelist="$SLURMD_NODENAME"']
    assert "'--container-image=lab.org:5000#torch:2'" in words and "--overlap" in words
    task, base = launch.folder, "/usr/local/pai"
    mounts = f"{task}/work:{base}/work,{task}/notes:{base}/notes,{task}/runtime:{base}/runtime:ro"
    assert f"--container-mounts={mounts}" in words and SECRET not in last
    assert words[-3:] == ["/bin/sh", f"{base}/runtime/entry", "uid"]


def test_a_step_for_pyxis_has_its_gpus_and_ends_with_its_exit_code_or_when_it_is_stopped(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step runs on a real Slurm, without the options of Pyxis, which is not installed."""
    made = images.command

    def command(program: ImageProgram, launch: Launch, mounts: Sequence[BindMount]) -> list[str]:
        words = [word for word in made(program, launch, mounts) if "container" not in word]
        runtime = launch.folder / "runtime"
        return [*words[:-2], "-c", f". {runtime}/environment; exec bash -eu {runtime}/command"]

    monkeypatch.setattr(images, "command", command)
    monkeypatch.setattr(images, "find_program", lambda wanted: PYXIS)
    lab = ImageWorkshop(tmp_path, machine(), {}, enforce=False)
    try:
        shown = "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES; exit $PAI_TASK_INDEX"
        roles = {"main": role(shown, gpu=1, instances=2, completion={"minFailedInstances": -1})}
        job = lab.run("gang", roles)
        found = [(lab.output(job.key, number=n), lab.tasks(job.key)[n].user_exit_code) for n in range(2)]
        assert found == [("node1 0\n", 0), ("node1 1\n", 1)]
        key = lab.submit("stopped", "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done")
        until(lambda: lab.tasks(key) and "up" in _output(lab, key))
        lab.state.set_execution(key, "STOP")
        assert lab.wait(key).state == "STOPPED" and lab.output(key) == "up\nsaved\n"
    finally:
        lab.clean()


@pytest.mark.parametrize(
    ("name", "apptainer", "pyxis"),
    [
        ("python", "docker://python", "python"),
        (
            "nvcr.io/nvidia/pytorch:24.01",
            "docker://nvcr.io/nvidia/pytorch:24.01",
            "nvcr.io#nvidia/pytorch:24.01",
        ),
        ("/shared/torch.sif", "/shared/torch.sif", "/shared/torch.sif"),
        ("oras://ghcr.io/lab/x:1", "oras://ghcr.io/lab/x:1", None),
        ("--privileged", None, None),
        ("a b", None, None),
        ("/a,b:/etc", None, None),
    ],
)
def test_images_are_named_as_each_program_wants(
    launch: Launch, name: str, apptainer: str | None, pyxis: str | None
) -> None:
    for program, expected in ((APPTAINER, apptainer), (PYXIS, pyxis)):
        wanted = replace(launch, image=name)
        if expected is None:
            with pytest.raises(ConfigError, match="invalid image name"):
                images.command(program, wanted, [])
        else:
            assert expected in {
                word.removeprefix("--container-image=") for word in images.command(program, wanted, [])
            }


def test_a_path_that_would_be_read_as_two_is_not_mounted(launch: Launch) -> None:
    with pytest.raises(ConfigError, match="cannot mount '/a:b'"):
        images.command(APPTAINER, launch, [BindMount("/x", Path("/a:b"))])


def test_the_program_for_images_is_found_or_its_absence_explained(
    slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert images.find_program("none") is None
    with pytest.raises(ConfigError, match="pyxis: srun has no option --container-image"):
        images.find_program("pyxis")
    with pytest.raises(ConfigError, match="apptainer: it is not installed here"):
        images.find_program("apptainer")
    (tmp_path / "singularity").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{slurm.environment['PATH']}")
    assert images.find_program("auto") == ("apptainer", str(tmp_path / "singularity"))
