"""Which cluster OPENPAI_TOKEN and OPENPAI_PASSWORD apply to."""

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


def applies(settings, cluster):
    found = environment.for_cluster(settings, cluster)
    assert bool(found.credentials) != bool(found.why_not)
    assert "\n" not in found.why_not and "a.b.c" not in found.why_not
    return bool(found.credentials)


def test_without_openpai_uri_credentials_apply_to_the_users_selected_cluster():
    assert applies(LAB, OWN)
    assert not applies(LAB, PROJECTS)
    assert not applies(LAB, dataclasses.replace(OWN, alias="other"))
    assert not applies(Settings(), OWN)


def test_project_cannot_select_the_cluster_that_gets_the_credentials():
    assert not applies(Settings(cluster_alias="lab", overruled={"cluster-alias": "local"}), OWN)
    assert applies(Settings(cluster_alias="other", overruled={"cluster-alias": "lab"}), OWN)


@pytest.mark.parametrize(
    "address",
    [
        "https://lab.example",
        " https://LAB.example:443/ ",
        "https://lab.example/rest-server/api/v2",
        "lab.example",
    ],
)
def test_with_openpai_uri_credentials_apply_to_that_address_only(monkeypatch, address):
    monkeypatch.setenv("OPENPAI_URI", address)
    assert applies(Settings(), OWN) and applies(Settings(), PROJECTS)
    assert applies(Settings(), dataclasses.replace(PROJECTS, prefix=""))
    assert applies(Settings(), dataclasses.replace(OWN, verify="/etc/our-ca.pem"))
    assert not applies(LAB, dataclasses.replace(PROJECTS, verify="/project/ca.pem"))
    assert not applies(LAB, dataclasses.replace(PROJECTS, prefix="/~mallory/rest-server"))
    for uri in ("http://lab.example", "https://lab.example:8443", "https://lab.example/x", "https://lab"):
        assert not applies(LAB, dataclasses.replace(OWN, uri=uri))


def test_reason_for_unused_credentials_says_what_to_set():
    where = environment.for_cluster(Settings(), dataclasses.replace(OWN, uri="https://gw/pai"))
    assert where.why_not.endswith("select (local); set OPENPAI_URI=https://gw/pai to use it here")


def test_credentials_apply_to_a_typed_address_unless_openpai_uri_differs(monkeypatch):
    both = ("https://lab", "http://lab")
    assert environment.for_addresses(both)[0].credentials
    monkeypatch.setenv("OPENPAI_URI", "http://lab")
    found, meant = environment.for_addresses(both)
    assert found.credentials and meant == ("http://lab",)
    found, meant = environment.for_addresses(("https://lab",))
    assert not found.credentials and meant == ("https://lab",)
    assert found.why_not == "OPENPAI_TOKEN is for http://lab, not for https://lab"


def test_invalid_openpai_uri_is_an_error(monkeypatch):
    monkeypatch.setenv("OPENPAI_URI", "https://alice:pw123@lab")
    with pytest.raises(ConfigError, match="OPENPAI_URI: invalid address") as raised:
        environment.for_cluster(LAB, OWN)
    assert "pw123" not in str(raised.value)


def test_without_the_variables_there_is_no_reason(monkeypatch):
    monkeypatch.delenv("OPENPAI_TOKEN")
    assert environment.for_cluster(Settings(), PROJECTS) == environment.EnvironmentLogin()
