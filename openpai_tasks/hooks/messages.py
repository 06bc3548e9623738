"""What hooks send: the facts of an event, as JSON, in the form of a service, or as variables of a command."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from openpai_tasks.hooks.hook import NTFY, SLACK, START, TEAMS, WAITING
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.text.durations import duration_in_words
from openpai_tasks.text.plain import one_line
from openpai_tasks.text.plurals import counted

LONGEST = 500  # characters of a cause
TIMESTAMP, SIGNATURE = "X-Openpai-Timestamp", "X-Openpai-Signature"
DELIVERY, ATTEMPT = "X-Openpai-Delivery", "X-Openpai-Attempt"


def worst_state(found: Iterable[str]) -> str:
    """Return the state of a sweep, or of several jobs, that have ended in these states."""
    return min(found, key=("FAILED", "STOPPED", "SUCCEEDED").index)


@dataclass(frozen=True)
class Facts:
    """An event of a job; of a sweep, ``jobs`` has the number of its jobs by state."""

    event: str
    name: str
    state: str
    user: str = ""
    cause: str = ""
    exit_code: int | None = None
    seconds: float | None = None  # from its start to its end; if it has not ended, since its submission
    link: str = ""  # the page of the job, or the command that explains it
    jobs: Mapping[str, int] = field(default_factory=dict)
    kind: str = "job"  # or sweep, jobs, trial
    kept: bool = False  # whether the environment of a failed job is kept for now

    def safe(self) -> Facts:
        """Return the facts with texts of one line, as a job may have printed anything."""
        return dataclasses.replace(self, name=one_line(self.name), cause=one_line(self.cause[:LONGEST]))

    @property
    def line(self) -> str:
        """The event in one line."""
        time = f" after {duration_in_words(self.seconds)}" if self.seconds is not None else ""
        if self.jobs:
            counts = ", ".join(f"{count} {state}" for state, count in sorted(self.jobs.items()))
            ended = "have ended" if self.kind == "jobs" else "has ended"
            return (
                f"{self.kind} {self.name} {ended}{time}: {counted(sum(self.jobs.values()), 'job')}, {counts}"
            )
        if self.kind == "trial":
            return "this is a trial message of openpai-tasks: its hooks work"
        if self.event == START:
            return f"job {self.name} has started{time}"
        if self.event == WAITING:
            return f"job {self.name} is still waiting{time}" + (f": {self.cause}" if self.cause else "")
        words = {"SUCCEEDED": "succeeded", "FAILED": "failed", "STOPPED": "was stopped"}
        cause = f": {self.cause}" if self.cause else ""
        kept = "; its environment is kept" * self.kept
        return f"job {self.name} {words.get(self.state, self.state)}{time}{cause}{kept}"

    def dump(self) -> dict[str, Any]:
        """Return the fields of the JSON message; ``duration`` is in seconds."""
        found = {
            **{"event": self.event, "name": self.name, "user": self.user, "state": self.state},
            **{"cause": self.cause, "exit_code": self.exit_code, "duration": self.seconds},
            **{"link": self.link, "text": self.line, "kind": self.kind},
        }
        return {**found, "jobs": dict(self.jobs)} if self.jobs else found

    def variables(self) -> dict[str, str]:
        """Return the variables of a command."""
        names = {"event": "EVENT", "name": "NAME", "user": "USER", "state": "STATE", "cause": "CAUSE"}
        names |= {"exit_code": "EXIT_CODE", "duration": "DURATION", "link": "LINK", "text": "TEXT"}
        values = self.dump()
        return {f"PAI_JOB_{names[name]}": _text(values[name]) for name in names} | (
            {"PAI_SWEEP_NAME": self.name} if self.kind == "sweep" else {}
        )


def _text(value: object) -> str:
    return "" if value is None else str(value)


def body(service: str, facts: Facts) -> tuple[bytes, dict[str, str]]:
    """Return the body of a POST, and the headers that belong to it."""
    is_address = facts.link.startswith("http")
    if service == NTFY:
        tag = "x" if facts.state == "FAILED" else "hourglass" if facts.event == WAITING else "computer"
        headers = {"Content-Type": "text/plain; charset=utf-8", "Tags": tag}
        more = {"Click": facts.link} if is_address else {}
        text = facts.line if is_address else f"{facts.line}\n{facts.link}"
        return text.encode(), {**headers, **more}
    value: dict[str, Any] = facts.dump()
    if service == SLACK:
        where = f"<{facts.link}|{facts.name}>" if is_address else f"`{_for_slack(facts.link)}`"
        value = {"text": f"{_for_slack(facts.line)}\n{where}"}
    elif service == TEAMS:
        # Runs are shown as they are, where a block of text would be Markdown: a job chooses its cause.
        link: dict[str, Any] = {"type": "TextRun", "text": facts.link}
        if is_address:
            link["selectAction"] = {"type": "Action.OpenUrl", "url": facts.link}
        runs = ({"type": "TextRun", "text": facts.line}, link)
        lines = [{"type": "RichTextBlock", "inlines": [run]} for run in runs]
        card = {"type": "AdaptiveCard", "version": "1.4", "body": lines}
        attached = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
        value = {"type": "message", "attachments": [attached]}
    return json.dumps(value).encode(), {"Content-Type": "application/json"}


def _for_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a body: HMAC-SHA256 of the timestamp, a dot and the body."""
    return "sha256=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
