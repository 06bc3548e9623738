"""Set the clock of all processes of a history, not that of the machine."""

from __future__ import annotations

import random
import time

from tests.endurance.faults.preloading import can_build, control, preload
from tests.endurance.plan import Fault, Options
from tests.endurance.world import World


class ClockStep(Fault):
    """The clock is wrong by up to a day for some seconds; clock.c does it (needs gcc)."""

    kind, weight, order = "clock step", 2, 0

    def fits(self, world: World) -> bool:
        return can_build()

    def prepare(self, world: World) -> None:
        preload(world, "clock", CLOCK_CONTROL=str(control(world, "clock", 0)))

    def plan(self, chance: random.Random) -> Options:
        hours = chance.choice((-30, -5, -1, -0.01, 0.01, 1, 5, 30))
        return {"hours": hours, "seconds": round(chance.uniform(0, 4), 2)}

    def inject(self, world: World, options: Options) -> str:
        control(world, "clock", int(options["hours"] * 3600))
        time.sleep(options["seconds"])
        self.repair(world)
        return f"{options['hours']} h"

    def repair(self, world: World) -> None:
        control(world, "clock", 0)
