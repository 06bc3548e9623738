"""How requests to S3 are signed, where they go, and how many there are."""

from __future__ import annotations

import os
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openpai_tasks.errors import Denied, NotFound, PathError, Unreachable
from openpai_tasks.net import connection_pool
from openpai_tasks.net.log_masking import REQUESTS
from openpai_tasks.storage.copying.copy import copy
from openpai_tasks.storage.copying.plan import plan_copy
from openpai_tasks.storage.location import open_storage
from openpai_tasks.storage.objects.s3.client import S3Login, StaticAccount, is_static
from openpai_tasks.storage.objects.s3.signing import S3Request, SigningScope, sign
from openpai_tasks.storage.store import StorageSpec
from tests.certificates import make_certificate
from tests.properties.mutations import steady
from tests.proxies import tunnelling_proxy
from tests.scripted import Reply, Scripted
from tests.storage import object_servers
from tests.storage.objects.test_objects import over, service  # noqa: F401 -- a fixture
from tests.storage.relay import Relay
from tests.storage.trees import at, plant, seen

FILE = Reply(b"content", headers=(("ETag", '"x"'), ("Last-Modified", "Mon, 12 Oct 2009 17:50:30 GMT")))
NOW = 1_700_000_000
KEYS = S3Login("AK", "theirs", None)
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
QUERIES = st.dictionaries(TEXT.filter(bool), TEXT, max_size=3)


@pytest.fixture(autouse=True)
def plain_settings(monkeypatch, tmp_path):
    """A machine without settings of S3."""
    for name in [name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(object_servers.home().parent.parent))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(params=["given", "botocore"])
def account(monkeypatch, tmp_path, request):
    """An account without settings, and one for which botocore looks for settings."""
    if request.param == "botocore":
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))


@pytest.fixture
def server(account):
    server = Scripted({})
    server.respond = lambda asked: FILE
    yield server
    server.close()


def opened(endpoint, bucket="data", **more):
    keys = {"accessKeyId": "AK", "secretAccessKey": "theirs", "bucket": bucket, "endpoint": endpoint}
    return open_storage(StorageSpec("lab", "objects", "s3", keys | more))


def content(store):
    return b"".join(store.read("/f"))


def scope(asked):
    return asked.headers["authorization"].partition("Credential=")[2].split(",")[0].split("/")[2:4]


def test_requests_are_logged_without_keys(server, caplog):
    with caplog.at_level("DEBUG", REQUESTS):
        assert content(opened(server.uri)) == b"content"
    assert f"GET {server.uri}/data/f -> 200" in caplog.messages
    assert "theirs" not in caplog.text and "Signature" not in caplog.text


ENDPOINTS = [
    "http://127.0.0.1:9000",
    "http://localhost:80/",
    "https://minio.example.org",
    "http://[::1]:9000",
]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
@pytest.mark.parametrize("bucket", ["data", "My_Data", "a.b.c", "x-1"])
def test_given_server_and_keys_need_no_botocore(endpoint, bucket, monkeypatch, tmp_path):
    from openpai_tasks.storage.objects.s3.account import S3Account

    monkeypatch.delenv("AWS_CONFIG_FILE", raising=False)
    ours, theirs = StaticAccount(bucket, endpoint, KEYS), S3Account(bucket, endpoint, "AK", "theirs", "")
    is_plain = endpoint.startswith("http:")
    for bundle in (None,) if is_plain else (None, "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        if bundle:
            monkeypatch.setenv(bundle, str(tmp_path / bundle))
            theirs = S3Account(bucket, endpoint, "AK", "theirs", "")
        assert is_static(bucket, endpoint, *KEYS[:2])
        assert ours.locate(None) == theirs.locate(None)
        assert is_plain or ours.certificates == theirs.certificates
        monkeypatch.delenv(bundle or "-", raising=False)
    login = theirs.login()
    assert ours.login() == (login.access_key, login.secret_key, login.token)


def test_settings_and_special_buckets_are_left_to_botocore(monkeypatch, tmp_path):
    monkeypatch.delenv("AWS_CONFIG_FILE", raising=False)
    usual = ("data", "http://127.0.0.1:9000", "AK", "theirs")
    assert is_static(*usual)
    for number, value in (
        *((0, bucket) for bucket in ("data--use1-az4--x-s3", "data-s3alias")),
        *((1, url) for url in ("", "https://s3.amazonaws.com", "http://h:1/path", "http://me@h:1")),
        *((number, "") for number in (2, 3)),
    ):
        assert not is_static(*usual[:number], value, *usual[number + 1 :])
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_CONFIG_FILE"):
        with monkeypatch.context() as changed:
            changed.setenv(name, "x")
            assert not is_static(*usual)
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text("[default]\nregion = eu-west-1\n")
    assert not is_static(*usual)


@steady(200)
@given(st.sampled_from(["GET", "PUT"]), TEXT, QUERIES, st.binary())
def test_signature_is_the_one_that_botocore_makes(method, key, query, body):
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    path = "/data/" + quote(key, safe="/")
    request = S3Request(method, path, query, {"host": "127.0.0.1", "x-amz-meta-mtime": "1.5"}, body)
    ours = sign(request, "AK", "secret", SigningScope("eu-west-1", "s3"), now=NOW)
    theirs = AWSRequest(method, f"http://127.0.0.1{request.target}", {"x-amz-meta-mtime": "1.5"}, body)
    theirs.context["timestamp"] = theirs.headers["X-Amz-Date"] = ours["x-amz-date"]
    theirs.headers["X-Amz-Content-SHA256"] = ours["x-amz-content-sha256"]
    auth = S3SigV4Auth(Credentials("AK", "secret"), "s3", "eu-west-1")
    text = auth.string_to_sign(theirs, auth.canonical_request(theirs))
    assert ours["authorization"].endswith(f"Signature={auth.signature(text, theirs)}")


@over("s3rver", "rclone", "azurite")
def test_each_file_costs_one_request_up_and_one_down(account, service, here):  # noqa: F811
    plant(here, {f"tree/{number}": b"x" * number for number in range(20)})
    with Relay(service.server.host) as relay:
        place = service.open(relay.host)
        assert copy(plan_copy([at(here, "tree")], at(place, "tree"))).files == 20
        assert [asked.split()[0] for asked in relay.asked if "/tree/1" in asked].count("PUT") == 11
        relay.asked.clear()
        assert copy(plan_copy([at(place, "tree")], at(here, "back"))).files == 20
        of_files = [asked.split()[0] for asked in relay.asked if "/tree/1" in asked]
        assert of_files == ["GET"] * 11, relay.asked
    assert seen(at(here, "back")) == seen(at(here, "tree"))


def test_connection_is_used_for_many_requests_and_not_shared_with_a_forked_process(server, monkeypatch):
    monkeypatch.setattr(connection_pool, "IDLE_SECONDS", 600.0)
    with Relay(f"127.0.0.1:{server.port}") as relay:
        store = opened(f"http://{relay.host}")
        server.http.RequestHandlerClass.do_HEAD = server.http.RequestHandlerClass.do_GET
        server.respond = lambda asked: Reply("", 404) if asked.method == "HEAD" else FILE
        for _ in range(5):
            assert content(store) == b"content"
            with pytest.raises(NotFound):
                store.digest("/f")
        assert relay.connections == 1
        child = os.fork()
        if not child:
            os._exit(0 if content(store) == b"content" else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert content(store) == b"content" and relay.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        Reply("", 301, (("x-amz-bucket-region", "eu-west-1"),)),
        Reply("<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region></Error>", 400),
    ],
    ids=["redirect", "malformed"],
)
def test_bucket_in_another_region_is_found_once(server, answer):
    server.respond = lambda asked: FILE if scope(asked) == ["eu-west-1", "s3"] else answer
    store = opened(server.uri)
    assert content(store) == b"content" and content(store) == b"content"
    assert [scope(asked)[0] for asked in server.seen] == ["us-east-1", "eu-west-1", "eu-west-1"]


def test_server_that_always_names_another_region_is_not_asked_forever(server):
    regions = iter(f"region-{number}" for number in range(99))
    server.respond = lambda asked: Reply("", 301, (("x-amz-bucket-region", next(regions)),))
    with pytest.raises(PathError, match="the server answered: Moved Permanently"):
        content(opened(server.uri))
    assert len(server.seen) == 2


def test_session_token_is_sent_and_signed(server):
    assert content(opened(server.uri, sessionToken="of the session")) == b"content"
    headers = server.seen[0].headers
    assert headers["x-amz-security-token"] == "of the session"
    assert "x-amz-security-token" in headers["authorization"]


def test_directory_bucket_is_asked_with_the_credentials_of_a_session(server):
    login = "<AccessKeyId>SESSION</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"
    login += "<SessionToken>t</SessionToken><Expiration>2100-01-01T00:00:00Z</Expiration>"
    session = Reply(f"<CreateSessionResult><Credentials>{login}</Credentials></CreateSessionResult>")
    server.respond = lambda asked: FILE if asked.path.endswith("/f") else session
    assert content(opened(server.uri, "data--use1-az4--x-s3")) == b"content"
    headers = server.seen[-1].headers
    assert headers["x-amz-s3session-token"] == "t" and "Credential=SESSION/" in headers["authorization"]
    assert scope(server.seen[-1])[1] == "s3express"


def test_error_in_an_answer_with_a_status_of_success_is_an_error(server):
    answers = {"HEAD": FILE, "PUT": Reply("<Error><Code>AccessDenied</Code><Message>no</Message></Error>")}
    server.http.RequestHandlerClass.do_HEAD = server.http.RequestHandlerClass.do_GET
    server.respond = lambda asked: answers[asked.method]
    with pytest.raises(Denied, match="refused: no"):
        opened(server.uri).rename("/a", "/b")


def test_answer_with_a_document_type_is_refused(server):
    server.respond = lambda asked: Reply('<!DOCTYPE x [<!ENTITY a "aaaa">]><x>&a;</x>')
    with pytest.raises(PathError, match="cannot understand"):
        list(opened(server.uri).list("/"))


def test_certificate_is_verified_with_the_bundle_of_the_settings(account, tmp_path, monkeypatch):
    certificate = str(make_certificate(tmp_path / "ca.pem"))
    server = Scripted({}, certificate)
    server.respond = lambda asked: FILE
    try:
        monkeypatch.setattr("openpai_tasks.storage.retry.FIRST_PAUSE", 0.001)
        with pytest.raises(Unreachable, match=r"no answer: .*certificate"):
            content(opened(server.uri))
        monkeypatch.setenv("AWS_CA_BUNDLE", certificate)
        assert content(opened(server.uri)) == b"content"
    finally:
        server.close()


def test_encrypted_requests_go_through_a_tunnel_of_the_proxy(account, tmp_path, monkeypatch):
    certificate = str(make_certificate(tmp_path / "ca.pem"))
    server = Scripted({}, certificate)
    server.respond = lambda asked: FILE
    try:
        with tunnelling_proxy() as (address, heads):
            monkeypatch.setenv("AWS_CA_BUNDLE", certificate)
            monkeypatch.setenv("HTTPS_PROXY", f"http://ann:p%40ss@{address}")
            store = opened(server.uri)
            assert content(store) == b"content"
            store.close()
        assert heads[0][0].startswith(f"CONNECT 127.0.0.1:{server.port} ")
        assert "Proxy-Authorization: Basic YW5uOnBAc3M=" in heads[0]
    finally:
        server.close()


def test_plain_requests_name_their_server_to_the_proxy(server, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", server.uri)
    monkeypatch.setenv("http_proxy", server.uri)
    asked = []
    with Relay(f"127.0.0.1:{server.port}", asked=asked) as relay:
        monkeypatch.setenv("http_proxy", f"http://{relay.host}")
        assert content(opened("http://s3.example:9000")) == b"content"
        assert asked == ["GET http://s3.example:9000/data/f"]
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert content(opened(server.uri)) == b"content" and len(asked) == 1
