"""Clusters for tests of whole commands: one with scripted responses, and a second alias of a real one."""

import pytest
import yaml


@pytest.fixture
def lab(shell, serve):
    """Start a server with these responses, which the shell knows as the cluster `lab`."""

    def start(answers, generation="1.8"):
        server = serve(answers)
        shell.home.mkdir(exist_ok=True)
        record = {"cluster_alias": "lab", "pai_uri": server.uri, "user": "ann", "generation": generation}
        (shell.home / "clusters.yaml").write_text(yaml.safe_dump([record]))
        shell.environment |= {"OPENPAI_TOKEN": "t0ken", "INVOKE_OPENPAI_CLUSTER_ALIAS": "lab", "TZ": "UTC"}
        return server

    return start


@pytest.fixture(scope="module")
def twin(cluster):
    """The same cluster under another alias, which is what `--to` and `alias:name` need."""
    known = cluster.ok("cluster.credentials", "local", "-o", "json").json()
    words = ("cluster.add", "twin", known["uri"], "--user", known["user"])
    cluster.ok(*words, "--password-file", "-", input=known["password"])
    return "twin"
