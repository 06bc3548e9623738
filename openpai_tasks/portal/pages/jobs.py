"""The list of jobs: filter, search, sort, pages, and stopping several."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from openpai_tasks import sdk
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError
from openpai_tasks.portal.live import Event, Steps
from openpai_tasks.portal.request import PortalRequest, redirect, whole_number
from openpai_tasks.protocol import states
from openpai_tasks.protocol.models import JobInfo

PAGE_SIZES = (25, 50, 100, 500, 1000)
SORTS = {
    "name": "jobName",
    "user": "username",
    "vc": "vc",
    "state": "state",
    "submitted": "submissionTime",
    "retries": "retries",
    "gpus": "totalGpuNumber",
    "tasks": "totalTaskNumber",
}
LARGEST_FIRST = ("submitted", "retries", "gpus", "tasks")
UP, DOWN = "asc", "desc"
LIVE_SECONDS = 2.0


@dataclass(frozen=True)
class Query:
    """What the address of the list asks for."""

    user: str
    state: str
    vc: str
    keyword: str
    tag: str
    sort: str
    descending: bool
    offset: int
    limit: int

    @property
    def order(self) -> str:
        return f"{SORTS[self.sort]},{'DESC' if self.descending else 'ASC'}"

    def address(self, **changes: Any) -> dict[str, Any]:
        """Return the query of an address for this list with changes; defaults are left out."""
        is_usual = (self.sort, self.descending) == ("submitted", True)
        values = {
            "user": self.user,
            "state": self.state,
            "vc": self.vc,
            "q": self.keyword,
            "tag": self.tag,
            "sort": "" if is_usual else self.sort,
            "dir": "" if is_usual else DOWN if self.descending else UP,
            "offset": self.offset or "",
            "limit": "" if self.limit == 100 else self.limit,
        }
        return values | changes

    def sorted_by(self, column: str) -> dict[str, Any]:
        """Return the query that sorts by a column, or the other way if it does already."""
        down = not self.descending if column == self.sort else column in LARGEST_FIRST
        return self.address(sort=column, dir=DOWN if down else UP, offset="")


def page(request: PortalRequest) -> Response:
    query = _query(request)
    jobs, more = _find(request.client, query)
    return request.page(
        "jobs.html",
        query=query,
        jobs=jobs,
        more=more,
        seen=_digest(jobs),
        states=states.ALL,
        sizes=PAGE_SIZES,
        mine=request.client.user,
        virtual_clusters=sorted(request.client.virtual_clusters()),
    )


def live(request: PortalRequest) -> Steps:
    """Send the rows again whenever they have changed."""
    query = _query(request)
    shown = "" if request.query.get("from") == "start" else request.query.get("seen", "")
    while True:
        started = time.monotonic()
        jobs, more = _find(request.client, query)
        if (now := _digest(jobs)) != shown:
            shown = now
            rows = request.fragment("jobs_table.html", query=query, jobs=jobs, more=more)
            yield Event("html", {"jobs": rows})
        yield max(LIVE_SECONDS, 4 * (time.monotonic() - started))


def _digest(jobs: list[JobInfo]) -> str:
    """Return a digest of what the list shows, so that a page that has it is not sent it again."""
    return hashlib.sha256(repr(jobs).encode("utf-8", "replace")).hexdigest()[:16]


def stop(request: PortalRequest) -> Response:
    """Stop the selected jobs."""
    keys = request.lists.get("job", ())
    if not keys:
        raise ConfigError("select the jobs to stop first")
    sdk.jobs.stop(request.client, keys)
    return redirect("c", request.alias, "jobs", **_query(request).address())


def _find(client: Backend, query: Query) -> tuple[list[JobInfo], bool]:
    """Return the jobs of a page, and whether there are more."""
    found = client.jobs(
        username=None if query.user == "all" else query.user or client.user,
        state=query.state or None,
        vc=query.vc or None,
        keyword=query.keyword or None,
        tagsContain=query.tag or None,
        order=query.order,
        offset=query.offset,
        limit=query.limit + 1,
    )
    return found[: query.limit], len(found) > query.limit


def _query(request: PortalRequest) -> Query:
    given = request.query
    state = given.get("state", "")
    sort = given.get("sort", "submitted")
    return Query(
        user=given.get("user", ""),
        state=sdk.jobs.parse_states(state) if state else "",
        vc=given.get("vc", ""),
        keyword=given.get("q", ""),
        tag=given.get("tag", ""),
        sort=sort if sort in SORTS else "submitted",
        descending=given.get("dir", DOWN if sort == "submitted" else UP) == DOWN,
        offset=whole_number(given.get("offset", "")) or 0,
        limit=min(whole_number(given.get("limit", "")) or 100, PAGE_SIZES[-1]),
    )
