"""What jobs ask a real Slurm with accounting for: partitions, QOS, types of GPUs, time, options, folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.protocol import validate
from openpai_tasks.protocol.document.scripts import limit_time, time_limit
from openpai_tasks.server.cluster import parse_folder
from openpai_tasks.server.engines.base import Engine, TaskExit
from openpai_tasks.server.engines.slurm import needs, partitions, watcher
from openpai_tasks.server.engines.slurm.engine import SlurmEngine
from openpai_tasks.server.engines.slurm.needs import SlurmNeed
from openpai_tasks.server.engines.slurm.site import SlurmSite, parse_option
from openpai_tasks.server.storages import Storage
from tests.server.engines.slurm_accounting import accounting_cluster
from tests.server.engines.slurm_cluster import SlurmCluster
from tests.server.workshop import Workshop, document, machine, role, until

NODES = (
    "a1|10.0.0.1|64|256000|gpu:a100:4(S:0-1)|mixed|gpu*|2-00:00:00\n"
    "v1|10.0.0.2|32|128000|gpu:v100:8|down|gpu*|2-00:00:00\n"
)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with accounting_cluster(tmp_path_factory.mktemp("slurm")) as made, pytest.MonkeyPatch.context() as patch:
        for name, value in made.environment.items():
            patch.setenv(name, value)
        yield made


class MappingWorkshop(Workshop):
    def make_engine(self) -> Engine:
        options = {"slurm-options": "--account=lab --nice=7 --time=5"}
        return SlurmEngine(self.folder / "jobs", self.grace, options)

    @property
    def storages(self) -> dict[str, Storage]:
        return {**super().storages, "scratch": Storage("scratch", self.folder / "scratch", share=True)}


@pytest.fixture
def lab(slurm: SlurmCluster, tmp_path: Path) -> Iterator[MappingWorkshop]:
    (tmp_path / "scratch").mkdir()
    made = MappingWorkshop(tmp_path, machine(), {}, enforce=False, grace=2.0)
    yield made
    made.clean()


def typed(kind: str) -> dict[str, Any]:
    return {"hivedScheduler": {"taskRoles": {"main": {"skuType": kind}}}}


def priority(name: str) -> dict[str, Any]:
    return {"hivedScheduler": {"jobPriorityClass": name}}


def test_a_job_gets_its_qos_gpu_type_time_limit_options_and_folders(lab: MappingWorkshop) -> None:
    script = (
        "echo $SLURM_JOB_QOS $SLURM_JOB_ACCOUNT $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES;"
        "squeue -h -j $SLURM_JOB_ID -o '%l %y'; echo kept > $PAI_MOUNT_ROOT/data/file"
    )
    extras = {
        **typed("v100"),
        "slurm": {"options": "--nice=9 --hint=nomultithread"},
        "storages": [{"name": "scratch", "mountPath": "/data"}],
    }
    more = {"extras": extras, "defaults": {"virtualCluster": "main:long"}}
    job = lab.run("all", {"main": role(limit_time(script, 5400), gpu=1)}, **more)
    assert lab.output(job.key, "all") == "long lab node2 0\n1:35:00 9\n"
    assert (lab.folder / "scratch" / "file").read_text() == "kept\n"


def test_a_gang_gets_types_of_gpus_and_the_options_of_the_site(lab: MappingWorkshop) -> None:
    print_all = "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $(squeue -h -j $SLURM_JOB_ID -o %l:%y)"
    all_of_them = {"minSucceededInstances": -1}
    roles = {
        "main": role(print_all, gpu=1, instances=2, completion=all_of_them),
        "other": role(print_all, cpu=2, completion=all_of_them),
    }
    low = {"hivedScheduler": {**typed("a100")["hivedScheduler"], "jobPriorityClass": "oppo"}}
    job = lab.run("typed", roles, extras=low)
    assert job.state == "SUCCEEDED", [task.diagnostics for task in lab.tasks(job.key)]
    shown = [lab.output(job.key, number=number).split() for number in range(3)]
    assert sorted(words[:2] for words in shown[:2]) == [["node1", "0"], ["node1", "1"]]
    assert shown[2] == ["node2", "5:00:10000", "5:00:10000"]


def test_the_qos_limits_a_job_which_waits_with_the_reason(lab: MappingWorkshop) -> None:
    more: dict[str, Any] = {"defaults": {"virtualCluster": "main:long"}}
    key = lab.submit("over", {"main": role("true", gpu=2)}, **more)
    wanted = "it would exceed the limit of GPUs that the quality of service allows (QOSGrpGRES)"
    until(lambda: wanted in lab.reasons(key).get("FailedScheduling", ""))


def test_virtual_clusters_are_partitions_and_the_qos_of_the_user(lab: MappingWorkshop) -> None:
    found = lab.engine.capacity()
    assert list(found.partitions) == ["default", "main", "main:long", "small"]
    assert {name: amount.gpu for name, amount in found.skus["main"].items()} == {"a100": 1, "v100": 1}


@pytest.mark.parametrize(
    ("allowed", "rows", "expected"),
    [
        ("AllowQos=ALL", "|normal,long|normal\n", ("long",)),
        ("AllowQos=normal,short", "|normal,long,short|normal\n", ("short",)),
        ("DenyQos=long", "|normal,long|normal\n", ()),
        ("AllowQos=ALL", "other|long|normal\n", ()),
        ("AllowQos=ALL", "|normal|\nmain|+fast,normal|normal\n", ("fast",)),
        ("AllowQos=normal,long", "", ("long",)),
        ("AllowQos=ALL", "", ()),
    ],
)
def test_the_qos_of_a_partition_are_those_that_it_and_the_account_allow(
    allowed: str, rows: str, expected: tuple[str, ...]
) -> None:
    found = partitions.parse_choices(["main"], f"PartitionName=main {allowed} MaxTime=1:00\n", rows)
    assert found.get("main", ()) == expected


@pytest.mark.parametrize(
    ("roles", "more", "words"),
    [
        ({"main": role("true", gpu=8)}, {}, ""),  # the node is down, but may come back
        ({"main": role("true", gpu=9)}, {}, "the largest node of gpu has 32 CPU, 128000 MB, 8 GPU"),
        (
            {"main": role("true", gpu=8)},
            {"extras": typed("a100")},
            "asks for 1 CPU, 10 MB, 8 GPU of type a100",
        ),
        ({"main": role("true", gpu=1)}, {"extras": typed("h100")}, "(there are: a100, v100)"),
        ({"main": role("true", gpu=1)}, {"extras": typed("a100:9\nx")}, "no GPUs of type 'a100:9\\nx'"),
        (
            {"main": role("true", gpu=4, instances=4)},
            {},
            "ask for 4 CPU, 40 MB, 16 GPU, all nodes of gpu have",
        ),
        ({"main": role(limit_time("true", 172800))}, {}, ""),
        (
            {"main": role(limit_time("true", 172801))},
            {},
            "its time limit is 48:00:01 h, gpu allows 48:00:00 h",
        ),
        ({"main": role("true")}, {"extras": {"slurm": {"options": 7}}}, "must be options of sbatch"),
    ],
)
def test_a_job_that_no_node_can_run_is_refused(
    roles: dict[str, Any], more: dict[str, Any], words: str
) -> None:
    known = partitions.parse_nodes(NODES).partitions["gpu"]
    why = needs.problem(validate(document("job", roles, **more)), "gpu", known)
    assert words in why and bool(words) == bool(why)


def test_slurm_says_whether_its_time_limit_ended_a_task() -> None:
    done = TaskExit(143, stopped=True)
    late = watcher._explain_exit(done, "TIMEOUT", is_step=False)
    assert late.timed_out and not late.stopped and "reached its time limit" in late.reason
    assert not watcher._explain_exit(done, "OUT_OF_MEMORY", is_step=False).timed_out


def test_the_time_limit_leaves_time_to_prepare_but_not_more_than_the_partition_has() -> None:
    known = partitions.parse_nodes(NODES)
    assert time_limit(limit_time("echo 'it''s'", 61)) == 61 and time_limit("sleep 61") is None
    for seconds, minutes in ((61, 7), (172800, 2880)):
        need = SlurmNeed("default", 1, 100, 0, seconds=seconds, options=("--qos=x",))
        options = needs.site_options(need, SlurmSite("", ("--time=5", "--account=lab")), known)
        assert options == (f"--time={minutes}", "--account=lab", "--qos=x", "--partition=gpu")


def test_a_low_priority_is_nice_and_a_high_one_needs_a_qos() -> None:
    known, site = partitions.parse_nodes(NODES), SlurmSite("", ("--nice=7",), "urgent")
    found = [needs.site_options(SlurmNeed("gpu", 1, 100, 0, rank=rank), site, known) for rank in range(3)]
    assert [options[0] for options in found] == ["--nice=10000", "--nice=7", "--nice=7"]
    assert [options[1:-1] for options in found] == [(), (), ("--qos=urgent",)]
    own = SlurmNeed("gpu:long", 1, 100, 0, rank=2)
    assert "--qos=long" in needs.site_options(own, site, known)
    high = validate(document("job", {"main": role("true")}, extras=priority("prod")))
    assert needs.priority_note(high, site) == ""
    assert needs.priority_note(high, SlurmSite("")) == (
        "the priority has no effect: Slurm lets users only lower a priority; if you may use a QOS for urgent"
        " jobs, set local.slurm-high-qos to its name"
    )


@pytest.mark.parametrize(
    "option",
    [
        "account=x",
        "--account",
        "--wrap=id",
        "--output=/x",
        "--account=a b",
        "--account=a\n#SBATCH",
        "-A x",
        "--mem=1",
    ],
)
def test_only_harmless_options_of_sbatch_are_passed_on(option: str) -> None:
    if option == "--account":
        assert parse_option(option, "here") == ("account", option)
    else:
        with pytest.raises(ConfigError, match=r"^here: "):
            parse_option(option, "here")


@pytest.mark.parametrize("text", ["scratch", "=/tmp", "a/b=/tmp", "scratch=relative", "scratch=/no/such"])
def test_a_shared_folder_has_a_name_and_exists(text: str) -> None:
    with pytest.raises(ConfigError, match="storage"):
        parse_folder(text)
