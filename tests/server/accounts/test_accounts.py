"""Users, groups, passwords and tokens, without HTTP."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import jwt
import pytest

from openpai_tasks.errors import ApiError, Denied
from openpai_tasks.server.accounts import users as accounts
from openpai_tasks.server.accounts.groups import Groups
from openpai_tasks.server.accounts.owner import Owner, sanitize_name
from openpai_tasks.server.accounts.tokens import KEYS, LOGS, Tokens
from openpai_tasks.server.accounts.users import Accounts
from openpai_tasks.server.api import bodies
from openpai_tasks.server.state.database import Database

KEY = b"k" * 32


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "cluster.db", accounts.SCHEMA)


@pytest.fixture
def users(database: Database) -> Accounts:
    return Accounts(database, Groups(database, ("default", "lab"), ("home",)))


@pytest.fixture
def tokens(database: Database, users: Accounts) -> Tokens:
    users.create("alice", "alice-secret", "", [], {})
    return Tokens(database, users)


def test_a_password_is_stored_salted_and_only_it_matches() -> None:
    first, second = accounts.hash_password("correct horse"), accounts.hash_password("correct horse")
    assert first != second and "correct" not in first
    assert accounts.matches_hash("correct horse", first) and accounts.matches_hash("correct horse", second)
    assert not accounts.matches_hash("correct horsf", first)


LITTLE_MEMORY = """
import resource
from pathlib import Path
from openpai_tasks.server.accounts.users import COST, matches_hash
stored = f"scrypt${COST}${'00' * 16}${'00' * 64}"
matches_hash("a password", stored)
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20), resource.RLIM_INFINITY))
try:
    matches_hash("a password", stored)
except MemoryError:
    print("no memory")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space")
def test_a_generated_password_is_never_taken_for_a_flag() -> None:
    assert not [found for _ in range(2000) if (found := accounts.generate_password()).startswith("-")]


def test_too_little_memory_to_check_a_password_is_reported_as_such() -> None:
    done = subprocess.run([sys.executable, "-c", LITTLE_MEMORY], capture_output=True, text=True, check=False)
    assert done.stdout == "no memory\n", done.stderr


def test_new_user_has_the_rights_of_the_default_group(users: Accounts) -> None:
    users.create("bob", "bob-secret", "", [], {})
    bob = users.user("bob")
    assert bob is not None
    assert (bob.grouplist, bob.admin) == (("default",), False)
    assert (bob.virtual_clusters, bob.storages) == (("default",), ("home",))


def test_an_admin_has_every_virtual_cluster(users: Accounts) -> None:
    users.create("root", "root-secret", "", [], {})
    users.set_admin("root", True)
    root = users.user("root")
    assert root is not None and root.admin and root.virtual_clusters == ("default", "lab")
    users.set_admin("root", False)
    root = users.user("root")
    assert root is not None and not root.admin and root.virtual_clusters == ("default",)


def test_names_that_differ_only_in_case_are_the_same_name(users: Accounts) -> None:
    users.create("bob", "bob-secret", "", [], {})
    with pytest.raises(ApiError) as refused:
        users.create("BOB", "bob-secret", "", [], {})
    assert (refused.value.status, refused.value.code) == (409, "ConflictUserError")


def test_unknown_group_creates_no_user(users: Accounts) -> None:
    with pytest.raises(ApiError, match="nobody"):
        users.create("bob", "bob-secret", "", ["nobody"], {})
    assert users.user("bob") is None


def test_token_identifies_its_user_until_it_is_revoked(tokens: Tokens) -> None:
    token = tokens.issue("alice")
    assert tokens.identify(f"Bearer {token}").user == "alice"
    tokens.revoke(token, "alice")
    with pytest.raises(Denied, match="Your token is invalid"):
        tokens.identify(f"Bearer {token}")


def test_tokens_issued_in_the_same_second_differ(tokens: Tokens) -> None:
    first, second = tokens.issue("alice"), tokens.issue("alice")
    tokens.revoke(first, "alice")
    assert tokens.list_of("alice") == [second]


def test_password_change_revokes_all_tokens_but_its_own_and_application_tokens(
    tokens: Tokens, users: Accounts
) -> None:
    tokens.issue("alice")
    used, application = tokens.issue("alice"), tokens.issue("alice", application=True)
    users.set_password("alice", "another-secret", keep=tokens.identify(f"Bearer {used}").token_id)
    assert tokens.list_of("alice") == [used, application]
    users.set_password("alice", "another-secret")
    assert tokens.list_of("alice") == [application]
    assert users.accepts("alice", "another-secret") and not users.accepts("alice", "alice-secret")


def test_basic_authentication_accepts_only_an_application_token_of_that_user(tokens: Tokens) -> None:
    def basic(user: str, secret: str) -> str:
        return "Basic " + base64.b64encode(f"{user}:{secret}".encode()).decode()

    application = tokens.issue("alice", application=True)
    assert tokens.identify(basic("alice", application)).application
    for header in (
        basic("bob", application),
        basic("alice", tokens.issue("alice")),
        basic("alice", "alice-secret"),
        "Basic %%%",
    ):
        with pytest.raises(Denied):
            tokens.identify(header)


def test_log_tickets_and_tokens_are_not_interchangeable(tokens: Tokens) -> None:
    ticket = tokens.ticket(LOGS, {"uid": "1", "username": "alice", "jti": "x"})
    claims = tokens.read_ticket(LOGS, ticket)
    assert claims and claims["uid"] == "1" and tokens.read_ticket(KEYS, ticket) is None
    with pytest.raises(Denied):
        tokens.identify(f"Bearer {ticket}")
    assert tokens.read_ticket(LOGS, tokens.issue("alice")) is None


def test_tokens_survive_a_restart(database: Database, users: Accounts, tokens: Tokens) -> None:
    token = tokens.issue("alice")
    assert Tokens(database, users).identify(f"Bearer {token}").user == "alice"


def _packed(data: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).rstrip(b"=").decode()


def _forgeries(token: str, key: bytes) -> dict[str, str]:
    """Return invalid tokens by what is wrong with them."""
    head, payload, signature = token.split(".")
    claims = jwt.decode(token, key, algorithms=["HS256"])
    return {
        "empty": "",
        "one word": "x",
        "dots only": "..",
        "signature": f"{head}.{payload}.{signature.swapcase()}",
        "payload": f"{head}.{_packed({**claims, 'username': 'root'})}.{signature}",
        "no algorithm": f"{_packed({'alg': 'none'})}.{payload}.",
        "no signature": f"{head}.{payload}.",
        "another algorithm": jwt.encode(claims, key * 2, algorithm="HS512"),
        "the right key, another algorithm": jwt.encode(claims, key, algorithm="HS384"),
        "another key": jwt.encode(claims, KEY, algorithm="HS256"),
        "an unknown extension": jwt.encode(claims, key, headers={"crit": ["x"], "x": 1}),
        "not a mapping": jwt.PyJWS().encode(b"[1]", key),
        "not JSON": jwt.PyJWS().encode(b"x", key),
        "too long": jwt.encode({**claims, "more": "x" * 4096}, key),
        "not ASCII": f"{head}.{payload}.{signature}\u00e9",
        "half a surrogate pair": f"{token}\udc80",
        "expired": jwt.encode({**claims, "exp": 100}, key),
        "odd expiry": jwt.encode({**claims, "exp": "soon"}, key),
    }


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
def test_a_forged_or_expired_token_is_refused(database: Database, tokens: Tokens) -> None:
    key = bytes(database.rows("SELECT value FROM account_keys WHERE name = 'tokens'")[0]["value"])
    token = tokens.issue("alice")
    assert tokens.identify(f"Bearer {token}").user == "alice"
    for why, forged in _forgeries(token, key).items():
        with pytest.raises(Denied) as caught:
            tokens.identify(f"Bearer {forged}")
        assert (caught.value.status, caught.value.code) == (401, "UnauthorizedUserError"), why
        if why not in ("expired", "odd expiry"):
            with pytest.raises(ApiError, match="not one of this cluster"):
                tokens.revoke(forged, "alice")


def test_expired_token_can_be_revoked_and_future_token_is_accepted(
    database: Database, tokens: Tokens
) -> None:
    key = bytes(database.rows("SELECT value FROM account_keys WHERE name = 'tokens'")[0]["value"])
    token = tokens.issue("alice")
    claims = jwt.decode(token, key, algorithms=["HS256"])
    set_back = jwt.encode({**claims, "iat": claims["iat"] + 3600}, key, algorithm="HS256")
    assert tokens.identify(f"Bearer {set_back}").user == "alice"  # the clock was set back since
    tokens.revoke(jwt.encode({**claims, "exp": 100}, key, algorithm="HS256"), "alice")
    with pytest.raises(Denied):
        tokens.identify(f"Bearer {token}")


def test_the_owner_is_an_admin_whose_password_is_in_a_private_file(tmp_path: Path, users: Accounts) -> None:
    owner = Owner(tmp_path, users)
    path = tmp_path / "credentials.json"
    stored = json.loads(path.read_text())
    assert path.stat().st_mode & 0o777 == 0o600
    assert users.accepts(owner.name, stored["password"])
    user = users.user(owner.name)
    assert user is not None and user.admin


def test_broken_credentials_file_is_recreated(tmp_path: Path, users: Accounts) -> None:
    name = Owner(tmp_path, users).name
    path = tmp_path / "credentials.json"
    before = json.loads(path.read_text())
    path.write_text("{")
    assert Owner(tmp_path, users).name == name
    after = json.loads(path.read_text())
    assert after != before and users.accepts(name, after["password"])


@pytest.mark.parametrize(
    ("name", "kept"),
    [("Jo Doe", "JoDoe"), ("a\\b/c~d", "abcd"), ("..", "admin"), ("", "admin"), ("ü", "admin")],
)
def test_login_name_is_sanitised_to_a_user_name(name: str, kept: str) -> None:
    assert sanitize_name(name) == kept


def test_a_nested_form_becomes_lists_and_dictionaries() -> None:
    form = b"jobName=j&taskRoles[0][name]=a&taskRoles[1][name]=b"
    form += b"&taskRoles[1][ports][]=1&taskRoles[1][ports][]=2"
    assert bodies.parse("application/x-www-form-urlencoded", form) == {
        "jobName": "j",
        "taskRoles": [{"name": "a"}, {"name": "b", "ports": ["1", "2"]}],
    }


@pytest.mark.parametrize("raw", [b"{", b"3", b"\xff", b"[" * 100_000, b'{"a": "\\ud800"}'])
def test_invalid_json_body_is_refused_without_a_code(raw: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        bodies.parse("application/json", raw)
    assert (refused.value.status, refused.value.code) == (400, "")
