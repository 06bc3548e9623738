"""Jobs that need a GPU: each has one of its own."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.endurance.operations.jobs import Submit, submission
from tests.endurance.plan import Options, Step
from tests.endurance.world import Record, World

# The kernel drops the lock when the last process of the job has ended, however it ends.
HOLD = """\
case $CUDA_VISIBLE_DEVICES in
[0-9]) exec 9>>{folder}/lock-$CUDA_VISIBLE_DEVICES && flock -n 9 && wrong= || wrong="is used twice" ;;
*) wrong="is not one GPU" ;;
esac
[ -z "$wrong" ] || echo "{label}: '$CUDA_VISIBLE_DEVICES' $wrong" >> {folder}/wrong"""


class UseGpu(Submit):
    kind, weight = "gpu", 2

    def fits(self, world: World) -> bool:
        return world.site.kind == "process" and bool(shutil.which("flock"))

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options:
        return {**super().plan(chance, label, labels), "seconds": chance.choice((1, 2, 4))}

    def prepare(self, world: World) -> None:
        _folder(world).mkdir()

    def command(self, world: World, options: Options) -> list[str]:
        more = HOLD.format(folder=_folder(world), label=options["label"])
        return submission(world, options, "--gpu", "1", more=more)

    def collect(self, world: World, steps: Sequence[Step]) -> list[str]:
        wrong = _folder(world) / "wrong"
        return wrong.read_text().splitlines() if wrong.exists() else []

    def check(self, record: Record) -> Iterator[str]:
        yield from record.collected(self.kind)


def _folder(world: World) -> Path:
    return world.folder / "gpus"
