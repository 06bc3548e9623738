"""Pictures of the portal's main pages for the documentation: `inv docs.screenshots`."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.browser import browser
from tests.conftest import Shell, make_shell
from tests.portal.conftest import open_link

TRAIN = """
import math, sys, time
from openpai_tasks import runtime

rate = float(sys.argv[1])
for step in range(1, 201):
    loss = math.exp(-step * rate) + 0.04 * math.sin(step / 9) ** 2
    runtime.log_metric("loss", loss, step=step)
    runtime.log_metric("accuracy", 1 - loss / 1.2, step=step)
    if step % 20 == 0:
        print(f"step {step:3d}  loss \\033[36m{loss:.4f}\\033[0m", flush=True)
"""
PICTURES = {
    "jobs": "/c/local/jobs",
    "job": "/c/local/jobs/missing-module",
    "metrics": "/c/local/jobs/resnet-lr-0_02/metrics",
    "compare": "/c/local/compare?job=resnet-*",
    "submit": "/c/local/submit",
}


def take(chromium: Any, target: Path, names: Iterable[str] = PICTURES) -> None:
    """Run a few jobs on an embedded cluster, and write a picture of each page into the folder."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, example(Path(folder)) as shell:
        page = chromium.new_page(viewport={"width": 1200, "height": 720})
        root = open_link(page, shell.pai("cluster.portal", "--no-browser").out.strip())
        for name in names:
            page.goto(root + PICTURES[name])
            settle(page)
            page.screenshot(path=target / f"portal-{name}.png")
        page.close()


def settle(page: Any) -> None:
    """Wait until the page has drawn what it shows."""
    page.wait_for_load_state("load")
    page.wait_for_function("document.fonts.status === 'loaded'")
    if page.locator("figure[data-plot]").count():
        page.locator(".plot-frame text").first.wait_for()


@contextmanager
def example(folder: Path) -> Iterator[Shell]:
    """A project with jobs of every kind."""
    shell = make_shell(folder)
    (shell.project / "train.py").write_text(TRAIN)
    try:
        for rate in ("0.005", "0.02", "0.08"):
            name = f"resnet-lr-{rate.replace('.', '_')}"
            flags = ("--sources", "train.py", "--job-name", name, "--tag", "resnet")
            shell.ok("job.sub", f"python train.py {rate}", *flags)
            shell.ok("job.wait", name)
        shell.ok(
            "job.sub",
            "echo 'loading data'; python -c 'import no_such_module'",
            "--job-name",
            "missing-module",
        )
        shell.inv("job.wait", "missing-module")
        shell.ok("job.sub", "sleep 600", "--job-name", "long-training", "--tag", "nightly")
        shell.ok("job.sub", "sleep 600", "--job-name", "queued-evaluation", "--cpu", str(os.cpu_count()))
        yield shell
    finally:
        shell.pai("cluster.portal", "--stop")
        shell.pai("cluster.stop")


if __name__ == "__main__":
    with browser() as started:
        take(started, Path(sys.argv[1]), sys.argv[2:] or PICTURES)
