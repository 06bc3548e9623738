"""Which cluster OPENPAI_TOKEN and OPENPAI_PASSWORD count for."""

import dataclasses

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.sdk.clusters import environment
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.registry import Cluster

OWN = Cluster("lab", "https://lab.example", "alice")
PROJECTS = dataclasses.replace(OWN, is_own=False)
LAB = Settings(cluster_alias="lab")


@pytest.fixture(autouse=True)
def variables(monkeypatch):
    monkeypatch.setenv("OPENPAI_TOKEN", "a.b.c")
    monkeypatch.delenv("OPENPAI_PASSWORD", raising=False)
    monkeypatch.delenv("OPENPAI_URI", raising=False)


def lent(settings, cluster):
    found = environment.for_cluster(settings, cluster)
    assert bool(found.credentials) != bool(found.why_not)
    assert "\n" not in found.why_not and "a.b.c" not in found.why_not
    return bool(found.credentials)


def test_without_an_address_it_is_the_selected_cluster_of_the_user():
    assert lent(LAB, OWN)
    assert not lent(LAB, PROJECTS)
    assert not lent(LAB, dataclasses.replace(OWN, alias="other"))
    assert not lent(Settings(), OWN)


def test_a_project_cannot_select_the_cluster():
    assert not lent(Settings(cluster_alias="lab", overruled={"cluster-alias": "local"}), OWN)
    assert lent(Settings(cluster_alias="other", overruled={"cluster-alias": "lab"}), OWN)


@pytest.mark.parametrize(
    "address",
    [
        "https://lab.example",
        " https://LAB.example:443/ ",
        "https://lab.example/rest-server/api/v2",
        "lab.example",
    ],
)
def test_with_an_address_it_is_that_one_whoever_names_it(monkeypatch, address):
    monkeypatch.setenv("OPENPAI_URI", address)
    assert lent(Settings(), OWN) and lent(Settings(), PROJECTS)
    assert lent(Settings(), dataclasses.replace(PROJECTS, prefix=""))
    assert lent(Settings(), dataclasses.replace(OWN, verify="/etc/our-ca.pem"))
    assert not lent(LAB, dataclasses.replace(PROJECTS, verify="/project/ca.pem"))
    assert not lent(LAB, dataclasses.replace(PROJECTS, prefix="/~mallory/rest-server"))
    for uri in ("http://lab.example", "https://lab.example:8443", "https://lab.example/x", "https://lab"):
        assert not lent(LAB, dataclasses.replace(OWN, uri=uri))


def test_the_reason_says_what_to_set():
    where = environment.for_cluster(Settings(), dataclasses.replace(OWN, uri="https://gw/pai"))
    assert where.why_not.endswith("select (local); set OPENPAI_URI=https://gw/pai to use it here")


def test_a_typed_address_counts_unless_another_one_is_set(monkeypatch):
    both = ("https://lab", "http://lab")
    assert environment.for_addresses(both)[0].credentials
    monkeypatch.setenv("OPENPAI_URI", "http://lab")
    found, meant = environment.for_addresses(both)
    assert found.credentials and meant == ("http://lab",)
    found, meant = environment.for_addresses(("https://lab",))
    assert not found.credentials and meant == ("https://lab",)
    assert found.why_not == "OPENPAI_TOKEN is for http://lab, not for https://lab"


def test_an_address_that_is_not_valid_is_said(monkeypatch):
    monkeypatch.setenv("OPENPAI_URI", "https://alice:pw123@lab")
    with pytest.raises(ConfigError, match="OPENPAI_URI: invalid address") as raised:
        environment.for_cluster(LAB, OWN)
    assert "pw123" not in str(raised.value)


def test_nothing_set_needs_no_reason(monkeypatch):
    monkeypatch.delenv("OPENPAI_TOKEN")
    assert environment.for_cluster(Settings(), PROJECTS) == environment.EnvironmentLogin()
