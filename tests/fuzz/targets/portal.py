"""Requests to the portal: queries and forms of every page, over a cluster with real answers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import parse_qsl

from openpai_tasks.errors import PaiError
from openpai_tasks.portal.request import PortalRequest
from openpai_tasks.portal.routes import TABLE
from openpai_tasks.portal.sessions import Session
from openpai_tasks.storage.local.store import LocalStore
from tests.fuzz.feeding import http_answers
from tests.fuzz.scratch import empty_folder
from tests.fuzz.target import Target
from tests.fuzz.targets.openpai import ANSWERED, NOT_FOUND, client_of

PAGES = [
    page
    for page in TABLE
    if not page.is_live and page.method != "PUT" and "tensorboard" not in page.path  # it is a process
]
PLACES = {"alias": "lab", "key": "ann~train", "storage": "team", "name": "sweep"}
FIELDS = {
    "jobs": b"state=RUNNING&user=ann&keyword=a&page=2&sort=name&columns=user,gpu&tab=all",
    "logs": b"task=0&attempt=0&stream=stdout&from=0&lines=100&q=error&level=info&format=html",
    "compare": b"jobs=ann~train&jobs=ann~b&metric=loss&x=step",
    "report": b"by=user&seconds=600&user=ann&from=2026-01-01&to=2026-02-01",
    "submit": b"command=true&job_name=a&image=i&gpu=1&memoryMB=1g&env=A%3D1&max_time=1h&text=name%3A+a",
    "storage": b'name=a.txt&paths=["a.txt", "b/c"]&sort=size&dir=desc&offset=0&q=a&view=raw',
}


class Storages:
    """One storage, a folder of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def rows(self, alias: str) -> list[object]:
        return []

    def opened(self, alias: str, name: str) -> tuple[Any, LocalStore]:
        return SimpleNamespace(name=name, read_only=False), LocalStore(str(self._folder))


def answer(method: str, target: str) -> bytes:
    return ANSWERED["1.8"].get(f"{method} {target.partition('?')[0]}", NOT_FOUND)


def parse_page(data: bytes) -> None:
    """Ask for the page that the first byte chooses: its query, its form, and the path of a file."""
    page = PAGES[data[0] % len(PAGES) if data else 0]
    query, form, rest = [*data[1:].decode("utf-8", "replace").split("\n", 2), "", ""][:3]
    asked, sent = (parse_qsl(text, keep_blank_values=True) for text in (query, form))
    lists: dict[str, tuple[str, ...]] = {}
    for name, value in (*sent, *asked):
        lists[name] = (*lists.get(name, ()), value)
    project = empty_folder("portal")
    (project / "a.txt").write_text("a")
    session = Session(lambda alias: client_of(), storages={"lab": cast(Any, Storages(project))})
    where = (session, project, page.path, {**PLACES, "rest": rest})
    with http_answers(answer):
        try:
            page.handler(PortalRequest(*where, dict(asked), dict(sent), lists))
        except PaiError as err:  # most forms need more than their page shows
            str(err).encode()


def _seeds() -> tuple[bytes, ...]:
    found = []
    for number, page in enumerate(PAGES):
        fields = next((text for word, text in FIELDS.items() if word in page.path.split("/{alias}")[-1]), b"")
        found.append(bytes([number]) + (fields + b"\n" if page.method == "GET" else b"\n" + fields) + b"\n")
    return tuple(found)


TARGETS = (Target("portal-request", parse_page, _seeds()),)
