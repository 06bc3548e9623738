"""Submissions are checked before anything is sent."""

import pytest

from openpai_tasks.paddlecloud.request import InvalidArgument, PaddleRequest, check_request


def check(**options):
    check_request(PaddleRequest("pkg", **{"entry": "true", **options}))


@pytest.mark.parametrize("name", ["a", "paddle-cluster-job", "0-1", "a" * 55])
def test_labels_of_kubernetes_are_job_names(name):
    check(jobname=name)


@pytest.mark.parametrize("name", ["A", "a_b", "a.b", "-a", "a-", "a b", "ä", "a\n", "a" * 56, "../x", "a/b"])
def test_other_job_names_are_refused(name):
    with pytest.raises(InvalidArgument, match="invalid job name"):
        check(jobname=name)


def test_a_refused_name_comes_with_a_valid_one():
    with pytest.raises(InvalidArgument, match=r"such as my-job-1$"):
        check(jobname="My_job.1")


@pytest.mark.parametrize(
    "size", ["1", "10Gi", "512Mi", "1.5Gi", ".5G", "+1k", "1e9", "1E6", "100m", "3Ei", "1E"]
)
def test_quantities_of_kubernetes_are_sizes(size):
    check(memory=size, psmemory=size)


@pytest.mark.parametrize(
    "size", ["", "0", "0Gi", "-1Gi", "10 Gi", "10GB", "10gi", "Gi", "1e", "ten", "0e9", "1Gi\n"]
)
@pytest.mark.parametrize("option", ["memory", "psmemory"])
def test_other_sizes_are_refused(option, size):
    with pytest.raises(InvalidArgument, match=f"-{option} needs a quantity"):
        check(**{option: size})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("parallelism", 0),
        ("parallelism", 1 << 31),
        ("cpu", 0),
        ("cpu", "2"),
        ("cpu", True),
        ("cpu", 1.5),
        ("gpu", -1),
        ("pservers", -1),
        ("pscpu", 0),
        ("passes", 0),
        ("min_instance", 0),
    ],
)
def test_numbers_out_of_range_are_refused(option, value):
    with pytest.raises(InvalidArgument, match=f"-{option} "):
        check(**{option: value})


def test_the_least_number_of_trainers_is_not_above_the_largest():
    check(min_instance=2, max_instance=2)
    with pytest.raises(InvalidArgument, match="-min_instance 3 is more than -max_instance 2"):
        check(min_instance=3, max_instance=2)


def test_an_entry_and_a_topology_may_be_left_out_but_not_blank():
    check(entry="", topology="modules/train.py")
    check(entry="", topology="")
    for option in ("entry", "topology"):
        with pytest.raises(InvalidArgument, match=f"-{option} is blank"):
            check(**{"entry": "", option: " "})


@pytest.mark.parametrize("path", ["/etc/passwd", "../train.py", "a/../../b"])
def test_a_topology_is_inside_the_package(path):
    with pytest.raises(InvalidArgument, match="inside the package"):
        check(topology=path)


@pytest.mark.parametrize("option", ["image", "registry"])
def test_images_and_registries_have_no_spaces(option):
    check(**{option: "reg.example:5000/paddle@sha256:0a"})
    with pytest.raises(InvalidArgument, match=f"-{option} cannot contain spaces"):
        check(**{option: "a b"})


def test_an_entry_cannot_contain_nul():
    with pytest.raises(InvalidArgument, match="NUL"):
        check(entry="true\0")
