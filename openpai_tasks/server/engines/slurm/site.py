"""What a site needs for every job: its options of the engine, which are settings of the user."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from openpai_tasks.errors import ConfigError

NO_IMAGES = "none"

_OPTIONS = frozenset(
    """
    account acctg-freq begin bb cluster-constraint constraint contiguous core-spec cpu-freq deadline
    delay-boot distribution exclude exclusive extra-node-info hint licenses mail-type mail-user mcs-label
    nice no-kill nodefile nodelist power prefer priority profile qos reservation sockets-per-node switches
    thread-spec threads-per-core time time-min tmp use-min-nodes wckey
    """.split()  # noqa: SIM905
)
_VALUE = r"[\w.,:;@%+/=&|*()\[\]!?~^-]+"
_OPTION = rf"--({'|'.join(sorted(_OPTIONS))})(={_VALUE})?"
PATTERN = rf"^\s*({_OPTION}(\s+{_OPTION})*)?\s*$"
"""Valid options of sbatch, for editors."""


class SlurmSite(NamedTuple):
    images: str  # what runs the images of jobs on the nodes
    options: tuple[str, ...] = ()  # of sbatch
    high_qos: str = ""  # of jobs with a high priority


class Qos:
    """The form of the name of a QOS."""

    PATTERN = r"^[\w.-]*$"

    @staticmethod
    def check(text: str, where: str) -> None:
        if not re.search(Qos.PATTERN, text, re.ASCII):
            raise ConfigError(f"{where}: expected the name of a QOS, got {text!r}")


def read_site(options: Mapping[str, str]) -> SlurmSite:
    """Return the site that the options of the engine describe."""
    text = options.get("slurm-options", "")
    images, qos = options.get("slurm-images", NO_IMAGES), options.get("slurm-high-qos", "")
    return SlurmSite(images, check(text, "slurm-options"), qos)


def check(text: str, where: str) -> tuple[str, ...]:
    """Return several options of sbatch, which are separated by spaces; settings find it by its name."""
    return merge_options(parse_option(word, where)[1] for word in text.split())


def parse_option(text: str, where: str) -> tuple[str, str]:
    """Return the name of an option of sbatch and the option; errors name ``where`` it was given.

    Options that decide which resources a job gets, what it runs or where its files are belong to the engine.
    """
    match = re.fullmatch(rf"--([a-z-]+)(?:={_VALUE})?", text, re.ASCII)
    if not match:
        raise ConfigError(
            f"{where}: invalid option {text!r}: expected --NAME or --NAME=VALUE, without quotes"
        )
    if match[1] not in _OPTIONS:
        raise ConfigError(f"{where}: the option --{match[1]} of sbatch cannot be set here")
    return match[1], text


def merge_options(*several: Iterable[str]) -> tuple[str, ...]:
    """Return options of sbatch, each once: the last one counts."""
    merged = {text.partition("=")[0]: text for options in several for text in options}
    return tuple(merged.values())
