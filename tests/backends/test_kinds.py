"""The table of kinds of clusters."""

import pytest

from openpai_tasks.backends import kinds
from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.settings.registry import DEFAULT_KIND, Cluster, dump, parse, registry_path


def test_every_kind_of_cluster_loads_its_driver():
    for type, kind in kinds.KINDS.items():
        driver = kinds.driver(type)
        assert kind.label and all(callable(getattr(driver, verb)) for verb in ("connect", "sign_in", "learn"))
    assert DEFAULT_KIND in kinds.KINDS


def test_an_unknown_type_is_an_error_that_names_the_known_ones():
    with pytest.raises(
        ConfigError, match=r"type 'k8s' are not supported \(known: openpai, paddlecloud, ssh, slurm\)"
    ):
        kinds.driver("k8s")


@pytest.mark.parametrize("kind", [DEFAULT_KIND, "other"])
def test_kind_is_written_to_the_registry_unless_it_is_the_default(kind):
    text = dump([Cluster("lab", "https://pai.example.org", kind=kind)])
    assert parse(text, registry_path())[0][0].kind == kind
    assert ("type:" in text) == (kind != DEFAULT_KIND)


DATACENTERS = [
    Cluster("lab", "https://pai.example.org"),
    Cluster("dc1", "https://dc1.example.org", kind="paddlecloud"),
    Cluster(
        "dc1-copy", "https://dc2.example.org", kind="paddlecloud", extra={"options": {"datacenter": "dc1"}}
    ),
]


@pytest.mark.parametrize(
    "path, found",
    [
        ("/pfs/dc1/home/ann/a b/*", "dc1/pfs/home/ann/a b/*"),
        ("/pfs/dc1/home/ann/", "dc1/pfs/home/ann/"),
        ("/pfs/dc1/public", "dc1/pfs/public"),
        ("/pfs/dc1/home/new\nline", "dc1/pfs/home/new\nline"),
        ("/pfs/local/home/ann/x", "local/home/x"),
        *(
            (path, "")
            for path in ("/pfs", "/pfs/dc1", "/pfs/dc1/homes/x", "/pfs//home/x", "/x/pfs/dc1/home/a")
        ),
    ],
)
def test_absolute_paths_may_belong_to_a_kind_of_cluster(path, found):
    assert kinds.find_path(path, lambda: DATACENTERS, lambda: "ann") == found


def test_folders_of_this_machine_have_priority_over_paths_of_clusters(tmp_path, monkeypatch):
    row = kinds.KINDS["paddlecloud"]._replace(path_root=str(tmp_path))
    monkeypatch.setattr(kinds.KINDS, "ours", {"paddlecloud": row})
    assert kinds.find_path(f"{tmp_path}/dc1/home/x", lambda: DATACENTERS, None) == ""


@pytest.mark.parametrize(
    "path, user, error",
    [
        ("/pfs/dc9/home/x", lambda: "ann", r"no datacenter 'dc9' \(known: dc1, dc1\)"),
        ("/pfs/local/home/x", None, "no datacenter 'local'"),
        ("/pfs/local/home/bob", lambda: "ann", "only files below /pfs/local/home/ann are yours"),
    ],
)
def test_paths_of_unknown_datacenters_and_other_users_are_refused(path, user, error):
    with pytest.raises(PaiError, match=error):
        kinds.find_path(path, lambda: DATACENTERS, user)
