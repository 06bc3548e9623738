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


@pytest.mark.parametrize("name", ["OPENPAI_TOKEN", "AWS-SECRET.ACCESS_KEY", "KEY"])
def test_document_does_not_get_a_variable_by_naming_it(monkeypatch, name):
    monkeypatch.setenv(name.replace("-", "_").replace(".", "_"), "hunter2")
    with pytest.raises(ConfigError, match=f"`--secret {name}` takes it from the variable") as raised:
        secrets.document_secret(name, is_chosen=False)
    assert "hunter2" not in str(raised.value)
    assert secrets.document_secret(name, is_chosen=True) == "hunter2"


def test_refusal_can_be_pasted_whatever_a_document_calls_its_secret():
    with pytest.raises(ConfigError, match=r"`--secret '\$\(id\)_password'`"):
        secrets.document_secret("$(id)_password", is_chosen=False)
