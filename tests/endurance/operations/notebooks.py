"""Run notebooks as jobs."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

from tests.endurance.plan import Operation, Options, Step
from tests.endurance.world import PAI, Record, World

MEMORY = 256  # MB of Jupyter


class Notebook(Operation):
    kind, weight = "notebook", 1

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options:
        return {"label": label, "number": chance.randrange(1 << 30)}

    def command(self, world: World, options: Options) -> list[str]:
        label = options["label"]
        journal = world.site.journal(world, label)
        source = f"open({journal!r}, 'a').write('cell\\n'); print('value', {options['number']} * 2)"
        cell: dict[str, Any] = {"cell_type": "code", "id": "a", "metadata": {}, "source": source}
        cell |= {"outputs": [], "execution_count": None}
        notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        path = world.folder / "project" / f"{label}.ipynb"
        path.write_text(json.dumps(notebook))
        flags = ("--python", world.site.python, "--to", "ipynb", "--no-browser")
        size = ("--cpu", "1", *world.site.job_flags(MEMORY))
        return [PAI, "notebook.run", str(path), "-j", label, *flags, *size]

    def collect(self, world: World, steps: Sequence[Step]) -> dict[str, Any]:
        """Return what the executed notebooks have printed; fetch those that are missing."""
        return {step.options["label"]: self._printed(world, step.options["label"]) for step in steps}

    @staticmethod
    def _printed(world: World, label: str) -> list[str] | None:
        result = world.folder / "project" / f"{label}.{label}.ipynb"
        if not result.exists():
            world.pai("notebook.fetch", label, "--no-browser")
        if not result.exists():
            return None
        cells = json.loads(result.read_text())["cells"]
        return ["".join(output.get("text", "")) for cell in cells for output in cell["outputs"]]

    def check(self, record: Record) -> Iterator[str]:
        states = {job["name"]: job["state"] for job in record.jobs}
        for ran in record.of_kind(self.kind):
            label, value = ran.step.options["label"], ran.step.options["number"] * 2
            printed = record.collected(self.kind)[label]
            if states.get(label) == "SUCCEEDED" and printed != [f"value {value}\n"]:
                yield f"notebook {label}: its result has {printed}"
            if ran.code == 0 and states.get(label) != "SUCCEEDED":
                yield f"notebook {label}: the command succeeded, but the job is {states.get(label)}"
            if record.journals.get(label, ()).count("cell") != (states.get(label) == "SUCCEEDED") and not any(
                f"~{label}/" in folder for folder in record.killed_tasks | record.lossy_tasks
            ):
                yield f"notebook {label} is {states.get(label)}; its cell ran: {record.journals.get(label)}"
