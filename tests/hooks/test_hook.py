"""Hooks as users write them: what is accepted, and that no address is ever shown."""

import json

import pytest

from openpai_tasks.errors import ConfigError
from openpai_tasks.hooks.hook import Hook, JobHooks, looks_like_hook, parse, parse_all

PATH = "T00/B00/XXXX"
SLACK = f"https://hooks.slack.com/services/{PATH}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (SLACK, "post to hooks.slack.com (slack) on end"),
        ("https://lab.webhook.office.com/x", "post to lab.webhook.office.com (teams) on end"),
        ("https://ntfy.sh/topic", "post to ntfy.sh (ntfy) on end"),
        ("ntfy:http://10.0.0.7:8080/topic", "post to 10.0.0.7 (ntfy) on end"),
        ("https://me:pw@example.org/x?token=y", "post to example.org on end"),
        ("slack:env:URL", "post to the address in $URL (slack) on end"),
        ({"desktop": True, "when": "failed, waiting>90m"}, "desktop on failed, waiting>90m"),
        ({"command": "mail -s x me", "when": ["start", "end", "end"]}, "command on start, end"),
    ],
)
def test_a_hook_is_described_without_its_secrets(text, shown):
    hook = parse(text)
    assert str(hook) == shown
    assert parse(hook.dump()) == hook
    assert PATH not in repr(hook) and "mail" not in repr(hook)


@pytest.mark.parametrize(
    "value",
    [
        "ftp://host/secret-path",
        "https:///secret-path",
        "https://host:99999999/secret-path",
        "https://host/secret-path x",
        "env:not-a-name/secret-path",
        {"post": "secret-path"},
        {"post": SLACK, "command": "secret-path"},
        {"command": "true", "secret": "secret-path"},
        {"post": SLACK, "when": "later"},
        {"post": SLACK, "when": "waiting>soon"},
        {"post": SLACK, "when": []},
        {"post": SLACK, "when": "waiting>10m,waiting>1h"},
        {"post": SLACK, "as": "pager"},
        {"post": ["secret-path"]},
        {"url": "secret-path"},
        {},
        7,
        '{"post": "secret-path',
    ],
)
def test_an_invalid_hook_is_refused_without_showing_its_address(value):
    with pytest.raises(ValueError) as refused:
        parse_all([value])
    assert "secret-path" not in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        *("{}", "[]", "x", '{"hooks": ["x"]}', '{"hooks": [], "sweep": 1}', "[" * 99999),
        json.dumps({"hooks": [SLACK] * 1000}),
    ],
)
def test_an_invalid_header_is_refused(text):
    with pytest.raises(ValueError):
        JobHooks.decode(text)


def test_the_header_keeps_hooks_and_sweep():
    given = JobHooks((parse(SLACK), parse({"desktop": True, "when": "waiting>10m"})), "lr", True)
    assert JobHooks.decode(given.encode()) == given
    assert given.hooks[1].waiting_seconds == 600
    with pytest.raises(ConfigError, match="16 KB"):
        JobHooks((Hook(command="x" * 20_000),)).encode()


def test_an_address_can_be_in_the_environment(monkeypatch):
    monkeypatch.setenv("HOOK", f"slack:http://127.0.0.1/{PATH}")
    monkeypatch.setenv("KEY", "k")
    hook = parse({"post": "env:HOOK", "secret": "env:KEY", "when": "waiting>1h"}).resolved()
    assert (hook.post, hook.service, hook.secret) == (f"http://127.0.0.1/{PATH}", "slack", "k")
    assert hook.waiting_seconds == 3600
    monkeypatch.setenv("HOOK", PATH)
    with pytest.raises(ConfigError, match=r"\$HOOK has an invalid address") as refused:
        parse("env:HOOK").resolved()
    assert PATH not in str(refused.value)


def test_only_words_that_look_like_addresses_follow_the_flag():
    assert all(map(looks_like_hook, (SLACK, "env:X", "teams:env:X", "http://host")))
    assert not any(map(looks_like_hook, ("true", "python x.py", "http", "slack", "mlp-1")))


@pytest.mark.parametrize(
    ("value", "needs_owner"),
    [
        (SLACK, False),
        ("https://ntfy.sh/x", False),
        ("slack:http://127.0.0.1:9/x", True),
        ("http://hooks.slack.com/x", True),
        ("https://hooks.slack.com.evil.example/x", True),
        ("https://10.0.0.1/x", True),
        ({"command": "true"}, True),
        ({"desktop": True}, True),
    ],
)
def test_others_than_the_owner_reach_only_public_services(value, needs_owner):
    assert parse(value).needs_owner is needs_owner
