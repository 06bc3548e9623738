"""The animated picture of a session on a terminal is real, whole, and up to date."""

import tempfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conftest import Shell
from tests.recording.session import COLUMNS, COMMANDS, CURSOR, LINES, PROMPT, Frame
from tests.recording.svg import render

ROOT = Path(__file__).parent.parent.parent
SVG = "{http://www.w3.org/2000/svg}"


def last_screen(picture):
    """Return the lines that the picture shows in the end, and without animation."""
    texts = ElementTree.fromstring(picture).iter(f"{SVG}text")
    return ["".join(text.itertext()) for text in texts if "past" not in text.get("class").split()]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recording")
    Shell(ROOT, folder / "home").ok("docs.recording", "--to", str(folder / "session.svg"), timeout=250)
    return [(folder / name).read_text() for name in ("session.svg", "session-still.svg")]


@pytest.fixture
def recorded(pictures):
    return pictures[0]


@pytest.fixture
def still(pictures):
    return pictures[1]


def test_a_recording_shows_the_commands_and_the_output_of_the_job(recorded):
    screen = last_screen(recorded)
    assert [line.removeprefix(PROMPT) for line in screen if line.startswith(PROMPT)] == [*COMMANDS, CURSOR]
    assert "epoch 6  loss 0.027  accuracy 98.6%" in screen
    assert any(line.startswith("digits  SUCCEEDED") for line in screen)
    assert "0.986338" in screen[-2]


def test_the_still_picture_shows_the_last_screen(still, recorded):
    assert last_screen(still) == last_screen(recorded)
    assert "animation" not in still and "<circle" in still and len(still) < len(recorded) / 3


def test_a_recording_needs_nothing_else_and_names_no_folder_of_this_machine(recorded):
    assert len(recorded.encode()) < 150_000
    assert not [word for word in ("<script", "href", "url(", "@import") if word in recorded]
    assert not [path for path in (tempfile.gettempdir(), Path.home(), ROOT) if str(path) in recorded]


@pytest.mark.parametrize("name", ["session.svg", "session-still.svg"])
def test_the_pictures_in_the_documentation_show_the_commands_of_the_script(name):
    screen = last_screen((ROOT / "docs/images" / name).read_text())
    assert [line.removeprefix(PROMPT) for line in screen if line.startswith(PROMPT)] == [*COMMANDS, CURSOR]
    assert len(screen) <= LINES and max(map(len, screen)) <= COLUMNS


def test_lines_are_seen_from_when_they_appear_until_they_change():
    rows = [((("a < b", "green"),),), ((("a < b", "green"),),), ((("c", ""),),)]
    frames = [Frame((*row, *[()] * (LINES - 1)), 1.0) for row in rows]
    picture = render(frames, "two & more")
    assert last_screen(picture) == ["c"]
    assert "@keyframes t0{0.00%{visibility:visible}66.67%{visibility:hidden}}" in picture
    assert "@keyframes t1{0%{visibility:hidden}66.67%{visibility:visible}}" in picture
    assert '<tspan class="green">a &lt; b</tspan>' in picture
