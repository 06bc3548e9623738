"""The list of jobs: tabs by state, filters, columns, pages, and actions on several jobs."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.responses import Response

from openpai_tasks import sdk
from openpai_tasks.backends.base import Backend
from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.portal.live import Event, Steps
from openpai_tasks.portal.pages import job_table
from openpai_tasks.portal.pages.job import submit_now
from openpai_tasks.portal.pages.job_table import COLUMNS, METRIC, USUAL, Row
from openpai_tasks.portal.request import PortalRequest, once, redirect, whole_number
from openpai_tasks.protocol import states
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.sweeps.comparison import MOST
from openpai_tasks.text.plurals import counted

PAGE_SIZES = (25, 50, 100, 500, 1000)
MOST_GROUPED = 2000
"""Jobs that are listed for one page, if sweeps share a row."""
MOST_METRICS = 8
MOST_CHANGED = 100
"""Jobs that are resubmitted or tagged at once."""
TABS = (states.WAITING, states.RUNNING, states.STOPPING, states.SUCCEEDED, states.FAILED, states.STOPPED)
UP, DOWN = "asc", "desc"
LIVE_SECONDS = 2.0
COUNT_SECONDS = 20.0
"""Time after which jobs are counted and measured again, although the listed ones have not changed."""


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
    columns: tuple[str, ...]
    metrics: tuple[str, ...]
    is_flat: bool
    opened: str

    @property
    def order(self) -> str:
        """The order that the cluster is asked for; by other columns, a page is sorted here."""
        field = COLUMNS[self.sort].order if self.sort in COLUMNS else "jobName" if self.sort == "name" else ""
        return f"{field},{'DESC' if self.descending else 'ASC'}" if field else "submissionTime,DESC"

    @property
    def is_sorted_here(self) -> bool:
        return self.sort != "name" and not (self.sort in COLUMNS and COLUMNS[self.sort].order)

    @property
    def is_grouped(self) -> bool:
        return self.sort == "submitted" and not self.is_flat

    @property
    def filters(self) -> dict[str, Any]:
        """What selects jobs, but for their state."""
        return {"vc": self.vc, "keyword": self.keyword, "tagsContain": self.tag}

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
            "col": [] if self.columns == USUAL else list(self.columns),
            "metrics": ",".join(self.metrics),
            "flat": 1 if self.is_flat else "",
            "open": self.opened,
        }
        return values | changes

    def sorted_by(self, column: str) -> dict[str, Any]:
        """Return the query that sorts by a column, or the other way if it does already."""
        is_largest_first = column not in COLUMNS or COLUMNS[column].is_largest_first
        down = not self.descending if column == self.sort else is_largest_first and column != "name"
        return self.address(sort=column, dir=DOWN if down else UP, offset="")


def page(request: PortalRequest) -> Response:
    query = _query(request)
    found = _find(request, query)
    return request.page(
        "jobs.html",
        **_table(request, query, found),
        seen=_digest(found),
        sizes=PAGE_SIZES,
        mine=request.client.user,
        virtual_clusters=sorted(request.client.virtual_clusters()),
    )


def live(request: PortalRequest) -> Steps:
    """Send the rows again whenever they have changed."""
    query = _query(request)
    seen = "" if request.query.get("from") == "start" else request.query.get("seen", "")
    shown: dict[str, str] = {}
    counted_at = time.monotonic()
    while True:
        started = time.monotonic()
        found = _find(request, query)
        if (now := _digest(found)) != seen or started - counted_at > COUNT_SECONDS:
            seen, counted_at = now, started
            values = _table(request, query, found)
            parts = {
                "jobs": request.fragment("jobs_table.html", **values),
                "tabs": request.fragment("jobs_tabs.html", **values),
            }
            if parts != shown:
                shown = parts
                yield Event("html", parts)
        yield max(LIVE_SECONDS, 4 * (time.monotonic() - started))


def _table(request: PortalRequest, query: Query, found: Found) -> dict[str, Any]:
    """Return what the tabs and the table show."""
    client, rows = request.client, found.rows
    has_guest = bool(request.session.only)
    values = job_table.measure(client, rows, query.metrics, request.mounts, has_guest)
    if query.is_sorted_here:
        rows = job_table.sort_rows(rows, query.sort, query.descending, values)
    counts = client.count_jobs(*TABS, username=_user(client, query), **query.filters)
    return {
        "query": query,
        "rows": rows,
        "more": found.more,
        "listed": found.listed,
        "values": values,
        "best_value": partial(job_table.best_value, values),
        "visible": job_table.visible_columns(rows, query.columns, client.user if not query.user else ""),
        "columns": COLUMNS,
        "counts": counts,
        "total": sum(counts.values()),
        "has_tags": client.capabilities.tags,
    }


@dataclass(frozen=True)
class Found:
    """The rows of a page, how many jobs they stand for, and whether there are more."""

    rows: list[Row]
    listed: int
    more: bool


def _digest(found: Found) -> str:
    """Return a digest of what the list shows, so that a page that has it is not sent it again."""
    return hashlib.sha256(repr(found).encode("utf-8", "replace")).hexdigest()[:16]


def _find(request: PortalRequest, query: Query) -> Found:
    """Return the rows of a page; if sweeps leave room for more, more jobs are listed."""
    client = request.client
    sweeps = sdk.sweeps.recorded_jobs(request.records, request.alias) if query.is_grouped else {}
    for most in (query.limit, MOST_GROUPED):
        jobs = _list(client, query, most + 1)
        rows = job_table.group(jobs[:most], sweeps, query.opened, query.limit)
        listed = sum(len(row.jobs) for row in rows)
        if len(rows) == query.limit or listed < most or not sweeps:
            break
    return Found(rows, listed, len(jobs) > listed)


def _list(client: Backend, query: Query, limit: int) -> list[JobInfo]:
    found = client.jobs(
        username=_user(client, query),
        state=query.state or None,
        order=query.order,
        offset=query.offset,
        limit=limit,
        **query.filters,
    )
    return sdk.jobs.add_causes(client, found)


def _user(client: Backend, query: Query) -> str | None:
    return None if query.user == "all" else query.user or client.user


def _query(request: PortalRequest) -> Query:
    given, chosen = request.query, request.lists.get("col", ())
    state, sort = given.get("state", ""), given.get("sort", "submitted")
    metrics = dict.fromkeys(name.strip() for name in given.get("metrics", "").split(",") if name.strip())
    is_known = sort in COLUMNS or sort == "name" or sort.startswith(METRIC)
    return Query(
        user=given.get("user", ""),
        state=sdk.jobs.parse_states(state) if state else "",
        vc=given.get("vc", ""),
        keyword=given.get("q", ""),
        tag=given.get("tag", ""),
        sort=sort if is_known else "submitted",
        descending=given.get("dir", DOWN if sort == "submitted" else UP) == DOWN,
        offset=whole_number(given.get("offset", "")) or 0,
        limit=min(whole_number(given.get("limit", "")) or 100, PAGE_SIZES[-1]),
        columns=tuple(name for name in COLUMNS if name in chosen) or USUAL,
        metrics=tuple(metrics)[:MOST_METRICS],
        is_flat=bool(given.get("flat")),
        opened=given.get("open", ""),
    )


# Actions on several jobs


def stop(request: PortalRequest) -> Response:
    """Stop the selected jobs that have not ended."""
    sdk.jobs.stop(request.client, _selected(request, PAGE_SIZES[-1]))
    return _back(request)


def compare(request: PortalRequest) -> Response:
    own = f"{request.client.user}~"
    names = [key.removeprefix(own) for key in _selected(request, MOST)]
    return redirect("c", request.alias, "compare", job=names)


def tag(request: PortalRequest) -> Response:
    """Add a tag to the selected jobs."""
    name = request.form.get("name", "").strip()
    sdk.jobs.check_tags(request.client, [name])
    _for_each(_selected(request, MOST_CHANGED), "tagged", lambda key: request.client.add_tag(key, name))
    return _back(request)


def resubmit(request: PortalRequest) -> Response:
    """Submit the selected jobs again, unchanged and under new names."""
    client, renamed = request.client, dict[str, str]()

    def repeat(key: str) -> None:
        made = sdk.jobs.repeat(
            client,
            client,
            key,
            _no_changes(),
            request.records,
            False,
            _refuse_secret,
            client.say,
            request.mounts,
            renamed=renamed,
        )
        renamed[key] = submit_now(client, made).key

    def submit() -> str:
        oldest_first = _selected(request, MOST_CHANGED)[::-1]  # others may depend on them
        _for_each(oldest_first, "resubmitted", repeat)
        return ""

    once(request, submit)
    return _back(request)


def _no_changes() -> Any:
    return sdk.jobs.build_changes(sdk.jobs.read_options({"job_name": ""}), _refuse_secret)


def _refuse_secret(name: str, is_chosen: bool = True) -> str:
    raise ConfigError(f"it has the secret {name!r}, which clusters never show: resubmit it from its own page")


def _selected(request: PortalRequest, most: int) -> list[str]:
    """Return the keys of the selected jobs, and of the listed jobs of selected sweeps."""
    keys, sweeps = dict.fromkeys(request.lists.get("job", ())), request.lists.get("sweep", ())
    if sweeps:
        rows = _find(request, _query(request)).rows
        keys |= dict.fromkeys(job.key for row in rows if row.sweep in sweeps for job in row.jobs)
    if not keys:
        raise ConfigError("select the jobs first")
    if len(keys) > most:
        raise ConfigError(f"select at most {most} jobs, not {len(keys)}")
    return list(keys)


def _for_each(keys: Sequence[str], done: str, act: Callable[[str], object]) -> None:
    """Act on each job; an error also says how many were done before."""
    for at, key in enumerate(keys):
        try:
            act(key)
        except PaiError as err:
            raise ConfigError(f"{at} of {counted(len(keys), 'job')} {done}, but not {key!r}: {err}") from err


def _back(request: PortalRequest) -> Response:
    return redirect("c", request.alias, "jobs", **_query(request).address())
