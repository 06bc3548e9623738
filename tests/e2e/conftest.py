"""A cluster with scripted responses, for tests of whole commands."""

import pytest
import yaml

from tests.scripted import Scripted


@pytest.fixture
def lab(shell):
    """Start a server with these responses, which the shell knows as the cluster `lab`."""
    servers = []

    def start(answers, generation="1.8"):
        server = Scripted(answers)
        servers.append(server)
        shell.home.mkdir(exist_ok=True)
        record = {"cluster_alias": "lab", "pai_uri": server.uri, "user": "ann", "generation": generation}
        (shell.home / "clusters.yaml").write_text(yaml.safe_dump([record]))
        shell.environment |= {"OPENPAI_TOKEN": "t0ken", "INVOKE_OPENPAI_CLUSTER_ALIAS": "lab", "TZ": "UTC"}
        return server

    yield start
    for server in servers:
        server.close()
