"""How the pages look and read: accessibility, narrow screens, and their size."""

import re
from pathlib import Path

import pytest

import openpai_tasks.portal
from tests.portal import screenshots
from tests.portal.conftest import FRAMES

ROOT = Path(__file__).parent.parent.parent
STATIC = Path(openpai_tasks.portal.__file__).parent / "static"
LARGEST = 200_000
JOB = "/c/local/jobs/look-1"
PAGES = [
    "/c/local/jobs",
    JOB,
    *(
        f"{JOB}/{tab}"
        for tab in (
            "logs",
            "records",
            "metrics",
            "outputs",
            "outputs/note.txt",
            "document",
            "provenance",
            "resubmit",
            "resubmit/document",
            "compare",
        )
    ),
    "/c/local/submit",
    "/c/local/submit/file",
    "/c/local/cluster",
    "/c/local/report",
    "/c/local/storage",
    "/c/local/storage/home",
    "/c/local/storage/home/jobs/look-1/output/note.txt",
    "/clusters",
    "/c/local/compare?job=look-1&job=look-2",
    "/c/local/sweeps",
    "/c/local/sweeps/look-at",
]
FOR_WIDE = {"resultTypes": ["violations"], "preload": False}
FOR_NARROW = {**FOR_WIDE, "runOnly": ["color-contrast", "link-in-text-block", "scrollable-region-focusable"]}
"""What a style sheet can change; a narrow screen only hides and moves parts of a page."""
SERIOUS_FAULTS = """
options => axe.run(options).then(found =>
    found.violations.filter(one => ["serious", "critical"].includes(one.impact)).map(one => one.help))
"""


@pytest.fixture(scope="module", autouse=True)
def job(cluster):
    point = (
        'echo "{\\"time\\": $x, \\"name\\": \\"loss\\", \\"value\\": $x, \\"step\\": $x, \\"index\\": $y}"'
    )
    files = """echo note > $PAI_OUTPUT_DIR/note.txt; echo '{"level": "INFO", "message": "a record"}'"""
    lines = f"echo out; {files}; for x in 0 1; do for y in 0 1; do {point}; done; done; exit 3"
    for name in ("look-1", "look-2"):
        cluster.ok("job.sub", lines, "--job-name", name)
    result = """echo '{"loss": '{x}'}'"""
    cluster.ok("job.sub", result, "--job-name", "look-at", "--sweep", "x=1,2,3", "--max-parallel", "3")
    cluster.inv("job.wait", "look-1", "look-2")


@pytest.mark.parametrize("path", [*PAGES, "/sign-in"])
def test_no_page_has_a_serious_accessibility_fault(tab, path):
    """On a wide light screen, and on a narrow dark one."""
    from axe_playwright_python.base import AXE_SCRIPT

    tab.add_init_script(AXE_SCRIPT)
    if path == "/sign-in":
        tab.context.clear_cookies()
    answer = tab.goto(tab.root + path)
    assert answer.status == 200
    if "metrics" in path or "look-2" in path:
        tab.locator(".plot-tools").first.wait_for()
    for scheme, width, rules in (("light", 1440, FOR_WIDE), ("dark", 390, FOR_NARROW)):
        tab.emulate_media(color_scheme=scheme)
        tab.set_viewport_size({"width": width, "height": 900})
        tab.evaluate(FRAMES)
        serious = tab.evaluate(SERIOUS_FAULTS, rules)
        assert not serious, f"{scheme}: {serious}"
        is_narrow = tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert is_narrow, f"it is too wide for {width} pixels"


def test_everything_that_a_browser_loads_is_small(visitor):
    files = sum(len(file.read_bytes()) for file in STATIC.iterdir())
    pages = max(len(visitor.get(path).content) for path in PAGES)
    assert files + pages < LARGEST


def test_pages_load_nothing_from_elsewhere(visitor):
    for path in PAGES:
        addresses = re.findall(r'(?:src|href|action)="([^"]+)"', visitor.get(path).text)
        assert addresses and all(one.startswith(("/", "#")) for one in addresses)
    for file in STATIC.iterdir():
        assert not re.search(rb"https?://(?!www\.w3\.org/)", file.read_bytes())


def test_the_documentation_shows_the_pictures_that_the_task_takes(chromium, tmp_path):
    shown = {path.name for path in (ROOT / "docs" / "images").glob("*.png")}
    assert shown == {f"portal-{name}.png" for name in screenshots.PICTURES}
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "".join(page.read_text() for page in pages)
    assert all(f"images/{name})" in text for name in shown)
    screenshots.take(chromium, tmp_path, ["metrics"])
    assert (tmp_path / "portal-metrics.png").read_bytes().startswith(b"\x89PNG")
