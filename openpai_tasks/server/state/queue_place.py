"""The place of a waiting job in the queue, by the rules of scheduling/turns.py."""

from __future__ import annotations

from openpai_tasks.protocol.document.policy import NORMAL
from openpai_tasks.server.state.database import Database
from openpai_tasks.server.state.records import Job
from openpai_tasks.text.plurals import counted


def describe_place(database: Database, job: Job) -> str:
    """Return the place of a waiting job in its virtual cluster, and why others are before it.

    It is what turns of one job each would make it; empty for a job that has no tasks to start.
    """
    own = database.row("SELECT share, rank, queued FROM jobs WHERE key = ? AND pending = 1", [job.key])
    if own is None:
        return ""
    rows = database.rows(
        "SELECT user, share, rank, count(*) AS jobs, sum(queued < ?1) AS earlier FROM jobs"
        " WHERE pending = 1 AND virtual_cluster = ?2 GROUP BY user, share, rank",
        [own["queued"], job.virtual_cluster],
    )
    mine = [row for row in rows if row["user"] == job.user]
    higher = sum(row["jobs"] for row in mine if row["rank"] > own["rank"])
    earlier = sum(
        row["earlier"] for row in mine if (row["share"], row["rank"]) == (own["share"], own["rank"])
    )
    others = [row for row in mine if row["rank"] == own["rank"] and row["share"] != own["share"]]
    before = higher + earlier + sum(min(row["jobs"], earlier + bool(row["earlier"])) for row in others)
    foreign: dict[str, list[int]] = {}  # user -> jobs, and those that were queued before this one
    for row in rows:
        if row["user"] != job.user and (row["rank"] < NORMAL) == (own["rank"] < NORMAL):
            known = foreign.get(row["user"], [0, 0])
            foreign[row["user"]] = [known[0] + row["jobs"], known[1] + row["earlier"]]
        elif row["user"] != job.user and row["rank"] > own["rank"]:
            higher += row["jobs"]
            before += row["jobs"]
    before += sum(min(jobs, before + bool(first)) for jobs, first in foreign.values())
    place = (
        f"place {before + 1} of {sum(row['jobs'] for row in rows)} in virtual cluster {job.virtual_cluster}"
    )
    reasons = [f"{counted(higher, 'job')} of a higher priority first"] if higher else []
    reasons += ["users and their sweeps take turns"] if others or foreign else []
    return "; ".join([place, *reasons])
