"""What a cluster that is reached by ssh is never asked to do: log in for others."""

import pytest

from openpai_tasks.backends import kinds
from openpai_tasks.backends.ssh import driver
from openpai_tasks.errors import ConfigError, Denied
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster, parse, registry_path
from openpai_tasks.storage.location import open_storage
from openpai_tasks.storage.store import StorageSpec

DRIVER = kinds.driver("slurm")


def silent(*words):
    return ""


def test_a_cluster_of_a_project_is_refused_before_ssh_starts():
    theirs = Cluster("hpc", "ssh://login", kind="slurm", is_own=False)
    with pytest.raises(ConfigError, match="'hpc' of this project is reached by ssh: refused"):
        DRIVER.connect(theirs, Credentials())
    with pytest.raises(ConfigError, match="refused"):
        DRIVER.sign_in(theirs, Credentials(), silent, silent, 1.0)


def test_a_typed_password_that_is_wrong_is_not_replaced_by_the_login_over_there(monkeypatch):
    def refuse(*given):
        raise Denied("wrong password", 401)

    monkeypatch.setattr(driver, "_complete", refuse)
    monkeypatch.setattr(driver, "Tunnel", lambda cluster: pytest.fail("it must not log in by ssh"))
    with pytest.raises(Denied, match="wrong password"):
        DRIVER.sign_in(
            Cluster("hpc", "ssh://login", "bob", "slurm"), Credentials("x"), silent, silent, 1.0, typed=True
        )


def test_another_cluster_cannot_make_us_read_files_by_ssh():
    spec = StorageSpec("lab", "home", "sftp", {"path": "/"}, cluster_uri="ssh://victim")
    with pytest.raises(ConfigError, match="refused"):
        open_storage(spec)


@pytest.mark.parametrize("uri", ["ssh://-oProxyCommand=id", "ssh://a b", "ssh://login/../x"])
def test_an_invalid_login_node_in_the_file_is_refused(uri):
    text = f"- cluster_alias: hpc\n  type: slurm\n  pai_uri: {uri!r}\n"
    with pytest.raises(ConfigError, match="invalid pai_uri"):
        parse(text, registry_path())
