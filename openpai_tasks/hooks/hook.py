"""A hook: an address, a command or the desktop, and the events that it is notified of.

An address may be a secret by itself (Slack), so no error or description shows more of it than the host.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any
from urllib.parse import urlsplit

from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.text.durations import seconds

HEADER = "x-openpai-hooks"
"""The header of a submission; like the submitter's environment, hooks are not part of the document."""
LIMIT = 16 * 1024  # characters of the header
END, FAILED, START, WAITING = "end", "failed", "start", "waiting"
SLACK, TEAMS, NTFY = "slack", "teams", "ntfy"
SERVICES = {
    SLACK: ("hooks.slack.com",),
    TEAMS: (".webhook.office.com", ".logic.azure.com", ".api.powerplatform.com"),
    NTFY: ("ntfy.sh",),
}
"""The hosts of services that need messages in their own form; a dot stands for any host of that domain."""
_PREFIX = re.compile(rf"({'|'.join(SERVICES)}):(?=https?://|env:)")
_TEXT = re.compile(rf"(?:{'|'.join(SERVICES)}|env):|[a-z]+://")
_VARIABLE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)")
_WAITING = re.compile(rf"{WAITING}\s*>\s*(\S+)")
_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
_KEYS = ("when", "post", "command", "desktop", "secret", "as")
_EXPECTED = "expected https://..., slack:https://..., teams:https://..., ntfy:https://... or env:NAME"


@dataclass(frozen=True)
class Hook:
    """Who is notified, by one of ``post``, ``command`` and ``desktop``, and of which events."""

    post: str = field(default="", repr=False)
    command: str = field(default="", repr=False)
    desktop: bool = False
    when: tuple[str, ...] = (END,)
    service: str = ""  # one of ``SERVICES``, or empty for our own JSON
    secret: str = field(default="", repr=False)  # signs what is posted

    @property
    def needs_owner(self) -> bool:
        """Whether only the owner of a server may use it there: others could reach what they may not."""
        return not (self.post.startswith("https://") and _service_of(self.post))

    @property
    def label(self) -> str:
        """Where it sends, without secrets."""
        if self.post.startswith("env:"):
            return f"the address in ${self.post.removeprefix('env:')}"
        if self.post:
            return urlsplit(self.post).hostname or "an address"
        return "the desktop" if self.desktop else "a command"

    def __str__(self) -> str:
        return self.describe()

    def describe(self, command: str = "command") -> str:
        """Describe it without secrets; ``command`` stands for its command."""
        what = f"post to {self.label}" if self.post else "desktop" if self.desktop else command
        service = f" ({self.service})" if self.service else ""
        return f"{what}{service} on {', '.join(map(_event_text, self.when))}"

    @property
    def waiting_seconds(self) -> int | None:
        """How long a job waits until the hook is notified of it; None if it is not."""
        return next((int(one.partition(">")[2]) for one in self.when if one.startswith(WAITING)), None)

    def is_due(self, state: str) -> bool:
        """Whether the hook is notified of a job, or a sweep, that has ended in this state."""
        return END in self.when or (FAILED in self.when and state == "FAILED")

    def dump(self) -> str:
        """Return the hook as JSON, which ``parse`` reads."""
        values = {"post": self.post, "command": self.command, "desktop": self.desktop, "when": self.when}
        values |= {"as": self.service, "secret": self.secret}
        return json.dumps({name: value for name, value in values.items() if value}, separators=(",", ":"))

    def resolved(self) -> Hook:
        """Return the hook with the values of the environment variables that it names."""
        post, secret = _read_variable(self.post), _read_variable(self.secret)
        if post == self.post and secret == self.secret:
            return self
        address = f"{self.service}:{post}" if self.service and not _PREFIX.match(post) else post
        try:
            return parse({"when": list(self.when), "post": address, "secret": secret})
        except ValueError as err:
            raise ConfigError(f"{self.label} {err}") from None


def looks_like_hook(text: str) -> bool:
    """Whether a word after ``--notify`` is its value."""
    return bool(_TEXT.match(text))


def parse(value: Any) -> Hook:
    """Read a hook: an address as text, or a mapping as in the setting ``notify``; raise ValueError."""
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError("has a hook that is not valid JSON") from None
    if value == "":  # such as a variable that is not set
        raise ValueError(f"has an empty address: {_EXPECTED}")
    if isinstance(value, str):
        value = {"post": value}
    if not isinstance(value, Mapping):
        raise ValueError(f"has a hook that is neither an address nor a mapping with {', '.join(_KEYS)}")
    unknown = [str(key) for key in value if key not in _KEYS]
    if unknown:
        raise ValueError(f"has a hook with an unknown key {unknown[0]!r} (known: {', '.join(_KEYS)})")
    given = {key: value.get(key) or "" for key in ("post", "command", "secret", "as")}
    if not all(isinstance(text, str) and "\0" not in text for text in given.values()):
        raise ValueError("has a hook whose post, command, secret or as is not text")
    desktop = value.get("desktop", False)
    if not isinstance(desktop, bool) or bool(given["post"]) + bool(given["command"]) + desktop != 1:
        raise ValueError("needs one of post, command and desktop: true in each hook")
    if given["secret"] and not given["post"]:
        raise ValueError("has a secret for a hook without post: only what is posted is signed")
    post, service = _read_address(given["post"], given["as"]) if given["post"] else ("", "")
    return Hook(post, given["command"], desktop, _read_events(value.get("when")), service, given["secret"])


def parse_all(value: Any) -> tuple[Hook, ...]:
    """Read one hook or a list of them."""
    several = [value] if isinstance(value, (str, Mapping)) else value
    if not isinstance(several, (list, tuple)):
        raise ValueError("must be an address or a list of hooks")
    return tuple(map(parse, several))


def describe_all(texts: Iterable[str], has_commands: bool = False) -> tuple[str, ...]:
    """Describe hooks in JSON without their secrets; with their commands if somebody is to trust these."""
    hooks = map(parse, texts)
    return tuple(hook.describe(f"command {hook.command!r}") if has_commands else str(hook) for hook in hooks)


@dataclass(frozen=True)
class JobHooks:
    """The hooks of a job; those of a sweep are notified once, when all of its jobs have ended."""

    hooks: tuple[Hook, ...] = ()
    sweep: str = ""
    is_last: bool = False  # no more jobs of the sweep follow

    def encode(self) -> str:
        """Return the value of the header: JSON in ASCII."""
        more = {"sweep": self.sweep, "last": self.is_last} if self.sweep else {}
        text = json.dumps({"hooks": [hook.dump() for hook in self.hooks], **more}, separators=(",", ":"))
        if len(text) > LIMIT:
            raise ConfigError(f"the hooks of a job may have {LIMIT // 1024} KB together: leave some out")
        return text

    @classmethod
    def decode(cls, text: str) -> JobHooks:
        """Read the value of the header; raise ValueError."""
        try:
            found = json.loads(text) if len(text) <= LIMIT else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("hooks"), list):
            raise ValueError(f"must be a JSON object of at most {LIMIT} characters with a list of hooks")
        sweep, is_last = found.get("sweep", ""), found.get("last", False)
        if not isinstance(sweep, str) or not isinstance(is_last, bool):
            raise ValueError("has an invalid sweep")
        return cls(parse_all(found["hooks"]), sweep, is_last)


def _service_of(address: str) -> str:
    """Return the service with this address; empty if it is none of them."""
    host = urlsplit(address).hostname or ""
    return next(
        (
            service
            for service, hosts in SERVICES.items()
            if any(host.endswith(one) if one.startswith(".") else host == one for one in hosts)
        ),
        "",
    )


def _read_address(text: str, service: str) -> tuple[str, str]:
    if match := _PREFIX.match(text):
        service, text = match[1], text[match.end() :]
    if service and service not in SERVICES:
        raise ValueError(f"has a hook with as: {service!r} (known: {', '.join(SERVICES)})")
    if _VARIABLE.fullmatch(text):
        return text, service
    try:
        parts = urlsplit(text)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or not text.isprintable() or " " in text:
        raise ValueError(f"has an invalid address: {_EXPECTED}")
    return text, service or _service_of(text)


def _read_events(value: Any) -> tuple[str, ...]:
    words = value.split(",") if isinstance(value, str) else [END] if value is None else value
    if not isinstance(words, Sequence) or not words or not all(isinstance(word, str) for word in words):
        raise ValueError("needs a list of events in when")
    events = tuple(dict.fromkeys(_read_event(word.strip()) for word in words))
    if sum(event.startswith(WAITING) for event in events) > 1:
        raise ValueError(f"has a hook with several {WAITING} events: write a hook for each")
    return events


def _read_event(word: str) -> str:
    if match := _WAITING.fullmatch(word):
        return f"{WAITING}>{seconds(match[1])}"
    if word not in (END, FAILED, START):
        raise ValueError(f"has an unknown event {word!r} (known: {END}, {FAILED}, {START}, {WAITING}>10m)")
    return word


def _event_text(event: str) -> str:
    name, _, time = event.partition(">")
    if not time:
        return name
    unit, size = next((unit, size) for unit, size in _UNITS if int(time) % size == 0)
    return f"{name}>{int(time) // size}{unit}"


def _read_variable(text: str) -> str:
    match = _VARIABLE.fullmatch(text)
    if not match:
        return text
    if not os.environ.get(match[1]):
        raise ConfigError(f"a hook needs the environment variable {match[1]}, which is not set")
    return os.environ[match[1]]
