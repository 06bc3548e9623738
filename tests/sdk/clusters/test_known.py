"""Adding clusters and connecting to them, against small servers that answer like each generation."""

import socket
import time

import pytest

from openpai_tasks.backends.openpai.driver import candidates, discover
from openpai_tasks.errors import ConfigError, Denied, PaiError, Unreachable
from openpai_tasks.sdk.clusters import editing
from openpai_tasks.sdk.clusters import known as clusters
from openpai_tasks.sdk.clusters.resources import list_resources
from openpai_tasks.settings import credentials
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import Cluster
from tests.certificates import make_certificate
from tests.sdk.pai_server import PASSWORD, USER, PaiServer, jwt

SETTINGS = Settings(http_timeout=30.0)
LAB = Settings(http_timeout=30.0, cluster_alias="lab")


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENPAI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    for name in ("OPENPAI_PASSWORD", "OPENPAI_TOKEN", "OPENPAI_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def serve():
    """Start servers; they end with the test."""
    started = []

    def start(*args, **options):
        started.append(PaiServer(*args, **options))
        return started[-1]

    yield start
    for server in started:
        server.close()


@pytest.fixture
def dead():
    """The address of a port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls") / "both.pem")


def quiet(line):
    pass


def no_terminal(prompt):
    raise AssertionError(f"asked for {prompt}")


def kept(*login):
    """The stored credentials for an alias, address and user."""
    return credentials.load(Cluster(*login).destination)


def add(server, alias="lab", address=None, check=True, ask=no_terminal, say=quiet, **new):
    given = {"user": USER, "credentials": Credentials(PASSWORD), **new}
    return clusters.add(SETTINGS, clusters.NewCluster(alias, address or server.uri, **given), check, ask, say)


# Addresses


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://pai.example.com", ["https://pai.example.com"]),
        ("http://pai.example.com/", ["http://pai.example.com"]),
        ("HTTP://PAI.example.com:9186", ["http://pai.example.com:9186"]),
        ("pai.example.com", ["https://pai.example.com", "http://pai.example.com"]),
        ("10.0.0.1:8080/", ["https://10.0.0.1:8080", "http://10.0.0.1:8080"]),
        ("http://10.0.0.1/rest-server", ["http://10.0.0.1"]),
        ("http://10.0.0.1/rest-server/api/v2/", ["http://10.0.0.1"]),
        ("http://10.0.0.1:9186/api/v1", ["http://10.0.0.1:9186"]),
        ("https://10.0.0.1/job-list.html?x=1#top", ["https://10.0.0.1"]),
        ("https://example.com/pai/", ["https://example.com/pai"]),
        (" http://[::1]:80 ", ["http://[::1]:80"]),
    ],
)
def test_addresses_are_accepted_in_common_notations(address, expected):
    assert list(candidates(address)) == expected


@pytest.mark.parametrize(
    "address", ["", "http://", "ftp://x", "http://a b", "http://x:port", "x:99999", "http://alice:pw123@x"]
)
def test_invalid_address_is_refused_with_one_line(address):
    with pytest.raises(ConfigError) as raised:
        candidates(address)
    assert "\n" not in str(raised.value) and "pw123" not in str(raised.value)


# Generations


@pytest.mark.parametrize(
    ("generation", "version", "expected"),
    [
        ("1.8", "v1.8.1", "1.8"),
        ("1.8", "1.2.0", "1.8"),
        ("1.8", None, "1.8"),
        ("0.18", "v1.0.0", "0.18"),
        ("0.18", None, "0.18"),
        ("0.16", "v0.16.0", "0.18"),
        ("0.14", None, "0.14"),
    ],
)
def test_generation_of_a_server_is_detected(serve, generation, version, expected):
    server = serve(generation, version)
    assert discover("lab", server.uri, True).generation == expected
    assert add(server).generation == expected


def test_rest_server_without_a_proxy_is_found(serve):
    server = serve(prefix="")
    assert add(server).rest == server.uri
    assert clusters.connect(SETTINGS, "lab").virtual_clusters()


def test_without_a_scheme_a_plain_server_is_found_after_https_failed(serve):
    server = serve()
    assert add(server, address=f"127.0.0.1:{server.port}/rest-server/").uri == server.uri


def test_a_redirect_to_https_is_followed_before_the_password_is_sent(serve, certificate):
    safe = serve(tls=certificate)
    plain = serve(redirect=safe.uri)
    assert add(plain, ca=str(certificate)).uri == safe.uri
    assert [method for method, *_ in plain.seen] == ["GET"]
    assert not any(PASSWORD in body or auth for _, _, auth, body in plain.seen)


def test_another_web_server_is_not_mistaken_for_openpai(serve):
    server = serve(prefix="/elsewhere")
    with pytest.raises(Unreachable, match=r"answers, but not as an OpenPAI server does \(HTTP 404"):
        add(server)


# Adding


def test_adding_stores_server_data_and_keeps_secrets_out_of_the_clusters_file(serve, own_home):
    server = serve()
    messages = []
    cluster = add(server, say=messages.append)
    assert cluster.virtual_clusters == ("default", "vc1")
    assert cluster.storages[0]["name"] == "nfs"
    text = (own_home / "clusters.yaml").read_text()
    assert PASSWORD not in text and server.token not in text
    assert kept("lab", server.uri, USER) == Credentials(PASSWORD, server.token)
    assert messages == [f"the password is stored in {own_home / 'credentials.yaml'}"]


def test_a_password_is_asked_for_only_when_none_is_given(serve):
    asked = []

    def ask(prompt):
        asked.append(prompt)
        return PASSWORD

    server = serve()
    add(server, credentials=Credentials(), ask=ask)
    assert asked == [f"password of {USER} at {server.uri}: "]


@pytest.mark.parametrize("generation", ["0.14", "0.18", "1.8"])
def test_wrong_password_is_an_error_and_nothing_is_stored(serve, own_home, generation):
    server = serve(generation, None)
    with pytest.raises(Denied, match=f"the password of user '{USER}' is wrong") as raised:
        add(server, credentials=Credentials("wrong-password"))
    assert "wrong-password" not in str(raised.value)
    assert not (own_home / "clusters.yaml").exists() and not (own_home / "credentials.yaml").exists()


def test_error_names_an_unknown_user(serve):
    with pytest.raises(Denied, match="there is no user 'bob'"):
        add(serve(), user="bob")


def test_closed_port_is_reported_as_unreachable_quickly(dead):
    begin = time.monotonic()
    with pytest.raises(Unreachable, match="refused"):
        add(None, address=dead)
    assert time.monotonic() - begin < 25


def test_a_name_that_does_not_resolve_is_unreachable():
    with pytest.raises(Unreachable, match=r"no-such-host\.invalid"):
        add(None, address="http://no-such-host.invalid")


def test_no_check_stores_the_given_values_without_contacting_the_server(dead):
    cluster = add(None, address=dead + "/rest-server/", check=False)
    assert (cluster.uri, cluster.user, cluster.generation) == (dead, USER, "")
    assert kept("lab", dead, USER).password == PASSWORD


def test_user_is_read_from_the_token(serve):
    server = serve()
    cluster = add(server, user="", credentials=Credentials(token=server.token))
    assert cluster.user == USER
    assert not any(method == "POST" for method, *_ in server.seen)


def test_application_token_is_stored_as_such(serve):
    server = serve()
    server.token = jwt(USER, application=True)
    add(server, user="", credentials=Credentials(token=server.token))
    assert kept("lab", server.uri, USER).application


def test_token_of_another_user_is_refused(serve):
    with pytest.raises(ConfigError, match="belongs to user 'bob', not to 'alice'"):
        add(serve(), credentials=Credentials(token=jwt("bob")))


def test_rejected_token_is_an_error(serve):
    with pytest.raises(Denied, match="does not accept the token of user 'alice'"):
        add(serve(), credentials=Credentials(token=jwt(USER, old=True)))


@pytest.mark.parametrize("generation", ["0.14", "1.8"])
def test_oidc_cluster_needs_a_token_and_never_gets_a_password(serve, generation):
    server = serve(generation, oidc=True)
    with pytest.raises(ConfigError, match=r"OIDC.*--token-file or OPENPAI_TOKEN"):
        add(server)
    assert not any(PASSWORD in body for *_, body in server.seen)
    assert add(server, credentials=Credentials(token=server.token)).user == USER


@pytest.mark.parametrize("alias", ["", "a b", "a/b", "../x", "-x", "local"])
def test_invalid_alias_is_refused(serve, alias):
    with pytest.raises(ConfigError, match="alias"):
        add(None, alias=alias, address="http://127.0.0.1:1")


def test_another_address_under_a_known_alias_needs_force(serve, own_home):
    first, second = serve(), serve()
    add(first)
    with pytest.raises(ConfigError, match=r"already the cluster at .* --force"):
        add(second)
    assert second.seen == []
    (own_home / "known_hosts").mkdir()
    (own_home / "known_hosts" / "lab").write_text("x")
    assert add(second, force=True).uri == second.uri
    assert not (own_home / "known_hosts" / "lab").exists()
    assert not kept("lab", first.uri, USER)


# TLS


def test_untrusted_certificate_is_refused_with_a_hint(serve, certificate):
    server = serve(tls=certificate)
    with pytest.raises(
        Unreachable, match=r"not trusted \(self-signed certificate\); give its CA with --ca FILE"
    ):
        add(server)
    assert server.seen == []


def test_untrusted_certificate_does_not_cause_a_fallback_to_http(serve, certificate):
    server = serve(tls=certificate)
    with pytest.raises(Unreachable, match="not trusted"):
        add(server, address=f"127.0.0.1:{server.port}")


def test_a_private_ca_is_trusted_and_remembered_whatever_the_environment_says(
    serve, certificate, monkeypatch
):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/etc/ssl/certs/ca-certificates.crt")
    server = serve(tls=certificate)
    assert add(server, address=f"127.0.0.1:{server.port}", ca=str(certificate)).uri == server.uri
    assert clusters.connect(SETTINGS, "lab").virtual_clusters()


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_missing_or_invalid_ca_file_is_an_error(tmp_path, content):
    path = tmp_path / "ca.pem"
    if content:
        path.write_text(content)
    with pytest.raises(ConfigError, match=r"ca\.pem"):
        add(None, address="https://127.0.0.1:1", ca=str(path))


# Working with them


def test_renewed_token_is_stored_for_the_next_command(serve):
    server = serve()
    add(server)
    server.token = jwt(USER, renewed=1)  # the old one is revoked
    assert clusters.connect(SETTINGS, "lab").virtual_clusters()
    server.seen.clear()
    assert clusters.connect(SETTINGS, "lab").virtual_clusters()
    assert [method for method, *_ in server.seen] == ["GET"]


def test_a_netrc_entry_does_not_replace_the_token(serve, tmp_path, monkeypatch):
    server = serve()
    add(server, address=server.uri.replace("127.0.0.1", "localhost"))
    (tmp_path / "netrc").write_text("machine localhost login mallory password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert clusters.connect(SETTINGS, "lab").virtual_clusters()


def test_token_in_the_environment_is_used_if_none_is_stored(serve, monkeypatch, own_home):
    server = serve()
    add(server, credentials=Credentials(), check=False)
    monkeypatch.setenv("OPENPAI_TOKEN", server.token)
    assert clusters.connect(LAB, "lab").virtual_clusters()
    clusters.update(LAB, "lab", clusters.ClusterUpdate(), no_terminal, quiet)
    assert not (own_home / "credentials.yaml").exists()


def test_token_in_the_environment_is_not_used_for_a_cluster_with_a_stored_login(serve, monkeypatch):
    server = serve()
    add(server)
    monkeypatch.setenv("OPENPAI_TOKEN", "meant.for.another")
    assert clusters.connect(SETTINGS, "lab").virtual_clusters()
    assert not any("meant.for.another" in auth for _, _, auth, _ in server.seen)


def test_missing_credentials_are_an_error(serve):
    add(serve(), credentials=Credentials(), check=False)
    with pytest.raises(Denied, match="no password or token"):
        clusters.connect(SETTINGS, "lab").virtual_clusters()


def test_stored_login_follows_the_detected_prefix(serve, own_home):
    server = serve(prefix="")
    add(server, check=False)
    assert clusters.connect(SETTINGS, "lab").virtual_clusters()
    found = clusters.open_registry(SETTINGS).get("lab")
    assert found.prefix == "" and credentials.load(found.destination).token == server.token
    assert (own_home / "credentials.yaml").read_text().count("password") == 1
    server.seen.clear()
    assert clusters.connect(SETTINGS, "lab").virtual_clusters()
    assert [method for method, *_ in server.seen] == ["GET"]


def test_a_new_ca_needs_the_password_again(serve, certificate, tmp_path):
    server = serve(tls=certificate)
    ca = tmp_path / "ca.pem"
    ca.write_bytes(certificate.read_bytes())
    add(server, ca=str(ca))
    ca.write_bytes(b"# renewed\n" + certificate.read_bytes())
    with pytest.raises(Denied, match=r"pai cluster\.update lab --login"):
        clusters.connect(SETTINGS, "lab").virtual_clusters()
    asked = []
    clusters.update(
        SETTINGS, "lab", clusters.ClusterUpdate(), lambda prompt: asked.append(prompt) or PASSWORD, quiet
    )
    assert asked == [f"password of {USER} at {server.uri} (checked with {ca}): "]
    assert clusters.connect(SETTINGS, "lab").virtual_clusters()
    with pytest.raises(AssertionError, match="asked for"):
        clusters.update(SETTINGS, "lab", clusters.ClusterUpdate(ca=str(certificate)), no_terminal, quiet)


def test_the_same_ca_in_another_file_keeps_the_login(serve, certificate, tmp_path):
    server = serve(tls=certificate)
    add(server, ca=str(certificate))
    (tmp_path / "same.pem").write_bytes(certificate.read_bytes())
    new = clusters.ClusterUpdate(ca=str(tmp_path / "same.pem"))
    assert not clusters.update(SETTINGS, "lab", new, no_terminal, quiet).problem


def test_stored_login_does_not_follow_a_redirect_to_another_server(serve):
    server, other = serve(), serve()
    add(server)
    server.redirect = other.uri
    expected = f"redirects to {other.uri}.*pai cluster.add lab {other.uri} --force"
    with pytest.raises(Unreachable, match=expected):
        clusters.update(SETTINGS, "lab", clusters.ClusterUpdate(), no_terminal, quiet)
    assert not any(auth or body for _, _, auth, body in other.seen)


def test_update_all_uses_the_environment_for_the_selected_cluster_only(serve, monkeypatch):
    first, second = serve(), serve()
    add(first, credentials=Credentials(), check=False)
    add(second, alias="other", credentials=Credentials(), check=False)
    monkeypatch.setenv("OPENPAI_PASSWORD", PASSWORD)
    rows = {row.alias: row.problem for row in clusters.update_all(LAB, quiet)}
    assert not rows["lab"] and f"set OPENPAI_URI={second.uri} to use it here" in rows["other"]
    assert not any(auth or body for _, _, auth, body in second.seen)


def test_added_cluster_gets_the_password_in_the_environment_unless_the_uri_differs(serve, monkeypatch):
    server = serve()
    monkeypatch.setenv("OPENPAI_PASSWORD", PASSWORD)
    monkeypatch.setenv("OPENPAI_URI", "https://elsewhere")
    with pytest.raises(ConfigError, match="OPENPAI_PASSWORD is for https://elsewhere, not for http"):
        add(server, credentials=Credentials(), ask=clusters.cannot_ask)
    assert not any(auth or body for _, _, auth, body in server.seen)
    monkeypatch.delenv("OPENPAI_URI")
    add(server, credentials=Credentials())
    assert kept("lab", server.uri, USER).password == PASSWORD


def test_resources_of_all_clusters_are_listed_and_a_dead_cluster_is_a_row(serve, dead):
    new, old = serve("1.8"), serve("0.14", None)
    add(new, alias="new")
    add(old, alias="old")
    add(None, alias="gone", address=dead, check=False)
    rows = {(row.cluster, row.virtual_cluster): row for row in list_resources(SETTINGS, None, quiet)}
    assert set(rows) == {("local", ""), ("new", "default"), ("new", "vc1"), ("old", "default"), ("gone", "")}
    assert (rows["new", "vc1"].gpus, rows["new", "vc1"].vcores, rows["new", "vc1"].memory_mb) == (
        "1/8",
        "2/32",
        "1024/65536",
    )
    assert rows["old", "default"].gpus == "1/4"
    assert "refused" in rows["gone", ""].problem and "not running" in rows["local", ""].problem


def test_resources_of_one_dead_cluster_are_an_error(dead):
    add(None, address=dead, check=False)
    with pytest.raises(Unreachable):
        list_resources(SETTINGS, "lab", quiet)


def test_update_refreshes_server_data_and_keeps_the_users_choices(serve):
    server = serve("0.18", None)
    add(server)
    book = clusters.open_registry(SETTINGS)
    book.change("lab", lambda cluster: type(cluster)(**{**vars(cluster), "workspace": "/mine"}))
    server.generation, server.version = "1.8", "v1.8.1"
    assert clusters.update(SETTINGS, "lab", clusters.ClusterUpdate(), no_terminal, quiet).generation == "1.8"
    assert book.get("lab").workspace == "/mine"


def test_update_accepts_a_new_password(serve):
    server = serve()
    add(server)
    server.password, server.token = "another password", jwt(USER, renewed=1)
    with pytest.raises(Denied, match="wrong"):
        clusters.update(SETTINGS, "lab", clusters.ClusterUpdate(), no_terminal, quiet)
    new = clusters.ClusterUpdate(credentials=Credentials("another password"))
    assert not clusters.update(SETTINGS, "lab", new, no_terminal, quiet).problem
    assert kept("lab", server.uri, USER) == Credentials("another password", server.token)


def test_update_with_login_asks_although_a_password_is_stored(serve):
    server, asked = serve(), []
    add(server)
    new = clusters.ClusterUpdate(login=True)
    clusters.update(SETTINGS, "lab", new, lambda prompt: asked.append(prompt) or PASSWORD, quiet)
    assert asked == [f"password of {USER} at {server.uri}: "]


def test_update_all_keeps_a_failing_cluster_and_reports_it(serve, dead):
    add(serve(), alias="good")
    add(None, alias="gone", address=dead, check=False)
    rows = clusters.update_all(SETTINGS, quiet)
    assert [(row.alias, bool(row.problem)) for row in rows] == [("good", False), ("gone", True)]
    assert clusters.open_registry(SETTINGS).get("gone").uri == dead
    with pytest.raises(PaiError, match="not updated: gone"):
        clusters.check_updated(rows)


def test_access_renews_an_expired_token_and_hides_the_password(serve):
    server = serve()
    server.token = jwt(USER, exp=1)
    add(server)
    server.token = jwt(USER, exp=4102444800)
    shown = clusters.access_info(SETTINGS, "lab", quiet)
    assert (shown.token, shown.password) == (server.token, None)
    assert server.token not in repr(shown)


def test_describe_asks_the_server(serve):
    add(serve())
    described = clusters.describe(SETTINGS, "lab", quiet)
    assert (described.version, described.login, described.storages) == ("v1.8.1", "basic", ("nfs",))


def test_deleting_needs_every_alias_to_be_known(serve):
    server = serve()
    add(server)
    with pytest.raises(ConfigError, match="'nope'"):
        clusters.delete(SETTINGS, ["lab", "nope"])
    assert clusters.open_registry(SETTINGS).get("lab")
    clusters.delete(SETTINGS, ["lab"])
    assert not kept("lab", server.uri, USER)


def test_deleting_a_cluster_removes_the_stored_files_of_its_jobs(serve, own_home):
    add(serve())
    known, locks = own_home / "known_hosts", (".lab.lock", ".far.lock")
    things = [own_home / kind / alias for kind in ("keys", "notebooks") for alias in ("lab", "far")]
    for folder in (known, own_home / "ssh", *things):
        folder.mkdir(parents=True)
        (folder / "ann~train").write_text("k")
    for name in ("lab", "far", ".gateways", *locks):
        (known / name).write_text("x")
    blocks = "".join(f"# job {alias} ann~train\nHost {alias}\n\n" for alias in ("lab", "far"))
    (own_home / "ssh" / "config").write_text(blocks)
    clusters.delete(SETTINGS, ["lab"])
    assert {path.name for path in known.iterdir()} == {"ann~train", "far", ".far.lock", ".gateways"}
    for kind in ("keys", "notebooks"):
        assert [path.name for path in (own_home / kind).iterdir()] == ["far"]
    text = (own_home / "ssh" / "config").read_text()
    assert "Host far\n" in text and "Host lab\n" not in text and (own_home / "ssh" / "ann~train").exists()


def test_select_writes_the_default_of_the_folder_or_the_global_default(serve, tmp_path, own_home):
    add(serve())
    assert clusters.select(SETTINGS, "lab", is_global=False) == tmp_path / ".openpai" / "defaults.yaml"
    assert clusters.select(SETTINGS, "local", is_global=True) == own_home / "defaults.yaml"
    assert Settings.load().cluster_alias == "lab"
    with pytest.raises(ConfigError, match="'nope'"):
        clusters.select(SETTINGS, "nope", is_global=False)


def test_a_storage_pseudo_cluster_runs_no_jobs(own_home):
    own_home.mkdir()
    (own_home / "clusters.yaml").write_text(
        "- {cluster_alias: nas, pai_uri: 'http://x', type: storage-nfs}\n"
    )
    with pytest.raises(ConfigError, match="storage-nfs"):
        clusters.connect(SETTINGS, "nas")


# Editing


def test_editing_takes_secrets_out_of_the_text(own_home):
    draft = editing.begin_edit(clusters.open_registry(SETTINGS))
    draft.path.write_text("- {cluster_alias: lab, pai_uri: 'http://x', user: ann, password: hunter22}\n")
    assert editing.finish_edit(draft, 0)
    assert "hunter22" not in (own_home / "clusters.yaml").read_text()
    assert kept("lab", "http://x", "ann").password == "hunter22"
    assert not draft.path.exists()


def test_a_change_by_another_command_meanwhile_is_not_overwritten(dead):
    draft = editing.begin_edit(clusters.open_registry(SETTINGS))
    add(None, address=dead, check=False)
    draft.path.write_text("- {cluster_alias: mine, pai_uri: 'http://x'}\n")
    with pytest.raises(ConfigError, match=r"changed by another command in the meantime.*your text is in"):
        editing.finish_edit(draft, 0)
    assert draft.path.exists() and clusters.open_registry(SETTINGS).get("lab")


def test_editor_comes_from_the_flag_then_visual_then_editor(monkeypatch):
    monkeypatch.setenv("VISUAL", "true --visual")
    monkeypatch.setenv("EDITOR", "true --editor")
    assert editing.editor_command("true --flag") == ["true", "--flag"]
    assert editing.editor_command("") == ["true", "--visual"]
    monkeypatch.delenv("VISUAL")
    assert editing.editor_command("") == ["true", "--editor"]
    with pytest.raises(ConfigError, match="no editor 'no-such-editor -x'"):
        editing.editor_command("no-such-editor -x")
