"""Where the values of a job's secrets come from."""

import io

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.tasks.framework import secrets


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))


def test_a_secret_that_the_user_names_is_the_variable_of_that_name(monkeypatch, capsys):
    monkeypatch.setenv("OPENPAI_TOKEN", "a.b.c")
    assert secrets.job_secret("OPENPAI_TOKEN") == "a.b.c"
    assert capsys.readouterr().err == "secret OPENPAI_TOKEN: taken from the environment\n"


@pytest.mark.parametrize("name", ["OPENPAI_TOKEN", "OPENPAI-PASSWORD", "OPENPAI.STORAGE.PASSWORD"])
def test_a_document_of_a_cluster_does_not_get_credentials_by_naming_them(monkeypatch, name):
    monkeypatch.setenv(name.replace("-", "_").replace(".", "_"), "hunter2")
    with pytest.raises(ConfigError, match="begin with OPENPAI_ are never passed") as raised:
        secrets.document_secret(name)
    assert "hunter2" not in str(raised.value)


def test_a_document_gets_other_variables_as_before(monkeypatch):
    monkeypatch.setenv("KEY", "value")
    assert secrets.document_secret("KEY") == "value"
