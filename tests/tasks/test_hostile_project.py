"""Project files that try to get the user's credentials sent to an attacker's server."""

import pytest

from tests.certificates import make_certificate
from tests.ports import free_port
from tests.sdk.pai_server import USER, PaiServer, jwt

PASSWORD, TOKEN = "planted-password-1", jwt(USER, planted=True)
COMMANDS = (
    ("job.list",),
    ("cluster.info", "lab"),
    ("cluster.update",),
    ("cluster.update", "lab"),
    ("cluster.resources",),
    ("storage.list", "lab"),
)


@pytest.fixture
def listen():
    """Start servers of the attacker, which accept the user's password."""
    started = []

    def start(**options):
        started.append(PaiServer(**options))
        started[-1].password, started[-1].token = PASSWORD, jwt(USER, fresh=True)
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def home(project, monkeypatch):
    """The user's home folder."""
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    return project.folder.parent / "home"


@pytest.fixture(params=["project", "user"])
def attack(project, home, request, monkeypatch):
    """Write the files of a trusted project; the project or the user enables clusters in it."""

    def write(record, selects=True):
        settings = ["clusters-in-local: true"] if request.param == "project" else []
        settings += ["cluster-alias: lab"] if selects else []
        project.write(".openpai/defaults.yaml", "\n".join(settings) + "\n")
        project.write(".openpai/clusters.yaml", record)
        monkeypatch.setenv("OPENPAI_TRUST", str(project.folder))
        if request.param == "user":
            monkeypatch.setenv("INVOKE_OPENPAI_CLUSTERS_IN_LOCAL", "true")

    return write


def log_in(project, uri):
    """Add the user's cluster `lab`, with a stored password and token."""
    project.write("../password", PASSWORD)
    project.write("../token", TOKEN)
    secrets = ("--password-file", "../password", "--token-file", "../token")
    assert project.pai("cluster.add", "lab", uri, "--user", USER, "--no-check", *secrets).code == 0


def assert_nothing_is_sent(project, server):
    for command in COMMANDS:
        ran = project.pai(*command)
        assert "Traceback" not in ran.err, ran
        assert PASSWORD not in ran.out + ran.err and TOKEN not in ran.out + ran.err
    assert not got_a_secret(server)


def got_a_secret(server):
    return any(secret in text for text in server.heard for secret in (PASSWORD, TOKEN))


def test_prefix_cannot_send_a_stored_login_to_another_host(project, listen, attack):
    thief, uri = listen(prefix=""), f"http://127.0.0.1:{free_port()}"
    log_in(project, uri)
    record = f"cluster_alias: lab, pai_uri: '{uri}', user: {USER}, generation: '1.8'"
    attack(f"- {{{record}, prefix: '@127.0.0.1:{thief.port}'}}\n")
    assert_nothing_is_sent(project, thief)
    assert thief.heard == []


def test_prefix_cannot_send_a_stored_login_to_another_path(project, listen, attack):
    thief = listen(prefix="/~mallory/rest-server")
    log_in(project, thief.uri)
    record = f"cluster_alias: lab, pai_uri: '{thief.uri}', user: {USER}, generation: '1.8'"
    attack(f"- {{{record}, prefix: '/~mallory/rest-server'}}\n")
    assert_nothing_is_sent(project, thief)


@pytest.mark.parametrize("path", ["../ca.pem", "{folder}/ca.pem"])
def test_server_with_a_ca_of_the_project_does_not_get_a_stored_login(project, listen, attack, path):
    thief = listen(tls=make_certificate(project.folder / "ca.pem"))
    log_in(project, thief.uri)  # which is checked with the system's CAs
    ca = path.format(folder=project.folder)
    attack(f"- {{cluster_alias: lab, pai_uri: '{thief.uri}', user: {USER}, ca: '{ca}'}}\n")
    assert_nothing_is_sent(project, thief)


@pytest.mark.parametrize("secret", [("OPENPAI_TOKEN", TOKEN), ("OPENPAI_PASSWORD", PASSWORD)])
@pytest.mark.parametrize(
    "meant", [("OPENPAI_URI", "https://lab"), ("INVOKE_OPENPAI_CLUSTER_ALIAS", "lab"), ()]
)
def test_credentials_in_the_environment_are_not_sent_to_a_project_address(
    project, listen, attack, monkeypatch, secret, meant
):
    thief = listen()
    attack(f"- {{cluster_alias: lab, pai_uri: '{thief.uri}', user: {USER}}}\n")
    for variable in filter(None, (secret, meant)):
        monkeypatch.setenv(*variable)
    assert_nothing_is_sent(project, thief)


def test_server_with_a_ca_of_the_project_does_not_get_the_token_in_the_environment(
    project, listen, attack, monkeypatch
):
    thief = listen(tls=make_certificate(project.folder / "ca.pem"))
    attack(f"- {{cluster_alias: lab, pai_uri: '{thief.uri}', user: {USER}, ca: ../ca.pem}}\n")
    monkeypatch.setenv("OPENPAI_URI", thief.uri)
    monkeypatch.setenv("OPENPAI_TOKEN", TOKEN)
    assert_nothing_is_sent(project, thief)
    project.pai("cluster.add", "lab", thief.uri, "--user", USER)  # the CA of the record is ignored
    assert not got_a_secret(thief)


def test_credentials_in_the_environment_are_not_sent_to_a_project_selected_cluster(
    project, home, listen, monkeypatch
):
    other = listen()
    assert project.pai("cluster.add", "lab", other.uri, "--user", USER, "--no-check").code == 0
    project.write(".openpai/defaults.yaml", "cluster-alias: lab\n")
    monkeypatch.setenv("OPENPAI_TOKEN", TOKEN)
    ran = project.pai("job.list")
    assert ran.code == 122 and ran.err.count("\n") == 1
    assert "OPENPAI_TOKEN is for the cluster that your own settings select (local)" in ran.err
    assert f"set OPENPAI_URI={other.uri} to use it here" in ran.err
    assert_nothing_is_sent_to_all(project, other)
    project.pai("job.list", "-a", "lab")
    assert got_a_secret(other)


def assert_nothing_is_sent_to_all(project, server):
    for command in (("cluster.update",), ("cluster.resources",), ("job.list",), ("storage.list",)):
        project.pai(*command)
    assert not got_a_secret(server)


def test_uri_in_the_environment_may_be_that_of_a_project_cluster(project, listen, attack, monkeypatch):
    server = listen()
    server.token = TOKEN
    attack(f"- {{cluster_alias: lab, pai_uri: '{server.uri}', user: {USER}}}\n")
    monkeypatch.setenv("OPENPAI_URI", f"{server.uri}/rest-server/")
    monkeypatch.setenv("OPENPAI_TOKEN", TOKEN)
    monkeypatch.setenv("INVOKE_OPENPAI_CLUSTERS_IN_LOCAL", "true")
    assert project.pai("job.list").code == 0


def test_project_cannot_replace_or_remove_the_users_login(project, home, listen, attack):
    thief = listen(tls=make_certificate(project.folder / "ca.pem"))
    log_in(project, thief.uri)
    before = (home / "credentials.yaml").read_text()
    record = f"cluster_alias: lab, pai_uri: '{thief.uri}', user: {USER}, ca: ../ca.pem"
    attack(f"- {{{record}, password: {PASSWORD}}}\n")
    for command in (("job.list",), ("cluster.update",), ("cluster.delete", "lab")):
        project.pai(*command)
    assert (home / "credentials.yaml").read_text() == before


def test_alias_of_a_project_cannot_escape_the_home_folder(project, listen, attack, monkeypatch):
    thief = listen()
    attack(f"- {{cluster_alias: ../../escaped, pai_uri: '{thief.uri}', user: {USER}}}\n", selects=False)
    monkeypatch.setenv("INVOKE_OPENPAI_CLUSTERS_IN_LOCAL", "true")
    ran = project.pai("job.list", "-a", "../../escaped")
    assert ran.code == 120 and "invalid alias" in ran.err and ran.err.count("\n") == 1


def test_password_in_a_project_record_is_used_for_that_record(project, home, listen, attack, monkeypatch):
    server = listen()
    attack(f"- {{cluster_alias: lab, pai_uri: '{server.uri}', user: {USER}, password: {PASSWORD}}}\n")
    monkeypatch.setenv("INVOKE_OPENPAI_CLUSTERS_IN_LOCAL", "true")
    assert project.pai("job.list").code == 0
