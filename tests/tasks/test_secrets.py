"""Where the values of a job's secrets come from."""

import io

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.tasks.framework import secrets


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO(""))


def test_secret_named_by_the_user_is_read_from_that_variable(monkeypatch, capsys):
    monkeypatch.setenv("OPENPAI_TOKEN", "a.b.c")
    assert secrets.job_secret("OPENPAI_TOKEN") == "a.b.c"
    assert capsys.readouterr().err == "secret OPENPAI_TOKEN: taken from the environment\n"


@pytest.mark.parametrize("name", ["OPENPAI_TOKEN", "OPENPAI-PASSWORD", "OPENPAI.STORAGE.PASSWORD"])
def test_document_cannot_get_credentials_by_naming_their_variables(monkeypatch, name):
    monkeypatch.setenv(name.replace("-", "_").replace(".", "_"), "hunter2")
    with pytest.raises(ConfigError, match="begin with OPENPAI_ are never passed") as raised:
        secrets.document_secret(name)
    assert "hunter2" not in str(raised.value)


def test_document_secret_is_read_from_another_variable(monkeypatch):
    monkeypatch.setenv("KEY", "value")
    assert secrets.document_secret("KEY") == "value"
