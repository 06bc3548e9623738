"""Datacenters that demand a client's certificate, and certificates that cannot be used."""

import ssl

import pytest

from openpai_tasks.backends import kinds
from openpai_tasks.backends.paddlecloud.backend import PaddleBackend
from openpai_tasks.errors import ApiError, ConfigError, Denied
from openpai_tasks.net.certificates import ClientCertificate
from openpai_tasks.settings.credentials import Credentials
from openpai_tasks.settings.registry import OPTIONS, Cluster
from tests.certificates import make_certificate
from tests.gateway import Gateway
from tests.scripted import Reply

DRIVER = kinds.driver("paddlecloud")


@pytest.fixture
def keys(tmp_path):
    """Two users' files with certificate and key, of which others could read the second."""
    for name in ("ann", "bob"):
        make_certificate(tmp_path / f"{name}.pem", name).chmod(0o600 if name == "ann" else 0o644)
    return tmp_path


def record(uri, path, **fields):
    options = {"datacenter": "dc1", "usercert": str(path)}
    return Cluster("dc1", uri, "ann", "paddlecloud", "v1", prefix="", extra={OPTIONS: options}, **fields)


@pytest.fixture
def demanding(serve, keys):
    """Serve answers behind a server that demands the certificate of ann."""
    made = []

    def start(answers):
        trusted = make_certificate(keys / "server.pem")
        gateway = Gateway(serve(answers).uri, trusted, keys / "ann.pem")
        made.append(gateway)
        return record(f"https://{gateway.address}", keys / "ann.pem", verify=str(trusted))

    yield start
    for gateway in made:
        gateway.close()


def test_a_certificate_signs_in_without_a_password(demanding):
    answers = {"GET /api/v1/token2user/": {"user": "ann"}, "GET /api/v1/filelist/": {"msg": "", "items": []}}
    cluster = demanding(answers)
    found, known = DRIVER.sign_in(cluster, Credentials(), pytest.fail, str, 10.0)
    assert (found.user, known) == ("ann", Credentials())
    assert DRIVER.connect(found, known).token_user() == "ann"
    assert DRIVER.connect(found, known).storage("pfs").data["token"] == ""


def test_a_certificate_that_is_not_enough_is_denied_in_one_line(demanding):
    def tell(request):
        return {"user": "ann"} if request.token else Reply({"detail": "no credentials"}, 401)

    answers = {"GET /api/v1/token2user/": tell, "POST /api-token-auth/": {"token": "t1"}}
    cluster = demanding(answers | {"GET /api/v1/filelist/": {"msg": "", "items": []}})
    with pytest.raises(Denied, match="does not accept the certificate alone; give a password, too"):
        DRIVER.connect(cluster, Credentials()).token_user()
    _, known = DRIVER.sign_in(cluster, Credentials(), lambda prompt: "pw", str, 10.0)
    assert known.token == "t1"


def test_a_certificate_is_not_presented_elsewhere(demanding, serve):
    other = serve({"GET /api/v1/quota/": {"items": []}})
    location = (("Location", f"{other.uri}/api/v1/quota/".replace("http:", "https:")),)
    cluster = demanding({"GET /api/v1/quota/": Reply("", 302, headers=location)})
    with pytest.raises(ApiError, match="which is not followed"):
        PaddleBackend(cluster, Credentials()).quotas()
    assert not other.seen


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"uri": "http://127.0.0.1:9"}, "usercert is not used: its address is not https"),
        ({"is_own": False}, "usercert is not used: a project cannot name it"),
        ({"path": "bob.pem"}, "other users can read the private key"),
    ],
)
def test_what_is_not_as_it_should_be_is_said(keys, fields, line):
    given = {"uri": "https://127.0.0.1:9", "path": "ann.pem"} | fields
    said = []
    DRIVER.connect(
        record(given.pop("uri"), keys / given.pop("path"), **given), Credentials(), say=said.append
    )
    assert len(said) == 1 and said[0].startswith("warning: ") and line in said[0]


def test_files_that_cannot_be_used_are_named(keys):
    from cryptography.hazmat.primitives import serialization as pem

    (keys / "text").write_text("no key")
    key = pem.load_pem_private_key((keys / "ann.pem").read_bytes(), None)
    form = (pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.BestAvailableEncryption(b"x"))
    (keys / "locked").write_bytes(key.private_bytes(*form))
    for name, problem in {
        "none": "cannot read .*none: No such file",
        "text": "are not a certificate and its private key in PEM form",
        "bob.pem": "the key .*bob.pem does not belong to .*ann.pem",
        "locked": "the key .*locked is encrypted; `openssl pkey -in .*locked -out NEW`",
    }.items():
        with pytest.raises(OSError, match=problem):
            ClientCertificate(str(keys / "ann.pem"), str(keys / name)).load(ssl.create_default_context())


def test_options_of_a_new_cluster_are_whole_paths(tmp_path):
    DRIVER.check_options({"usercert": str(tmp_path / "ann.pem")})
    with pytest.raises(ConfigError, match=r"invalid userkey 'key.pem': expected a whole path such as /"):
        DRIVER.check_options({"userkey": "key.pem"})
