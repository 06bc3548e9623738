"""The last results of each topic, kept in ``benchmarks/results.json``."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.side_by_side import ResultRow

FILE = Path(__file__).with_name("results.json")


@dataclass(frozen=True)
class TopicResult:
    """The rows of one topic, and when and where they were measured."""

    date: str
    machine: str
    rows: list[ResultRow]


def measured_now(rows: list[ResultRow]) -> TopicResult:
    return TopicResult(time.strftime("%Y-%m-%d"), _machine(), rows)


def read(file: Path = FILE) -> dict[str, TopicResult]:
    """Return the results by topic; none without the file."""
    kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return {
        topic: TopicResult(one["date"], one["machine"], [ResultRow(**row) for row in one["rows"]])
        for topic, one in kept.items()
    }


def replace(
    new: Mapping[str, TopicResult], order: Sequence[str], file: Path = FILE
) -> dict[str, TopicResult]:
    """Keep the new results instead of older ones of the same topics; return those of all topics.

    A topic without a row, as its peers are not installed, keeps its old results.
    """
    found = read(file) | {topic: result for topic, result in new.items() if result.rows}
    kept = {topic: found[topic] for topic in order if topic in found}
    text = json.dumps({topic: asdict(result) for topic, result in kept.items()}, indent=1, ensure_ascii=False)
    file.write_text(text + "\n", encoding="utf-8")
    return kept


def _machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    processors = f"{os.cpu_count()} processors ({platform.machine()})"
    return f"{processors}, {memory:.0f} GiB of memory, Python {platform.python_version()}"
