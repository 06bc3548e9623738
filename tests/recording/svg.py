"""Pictures of a terminal session, animated (CSS keyframes, no script, real text) and still."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from xml.sax.saxutils import escape

from tests.recording.session import COLUMNS, LINES, Frame, Row

WIDTH, HEIGHT = 8.4, 17  # of a character
MARGIN, BASE = 18, 13  # of the window; from the top of a line to the feet of its letters
WINDOW = round(COLUMNS * WIDTH + 2 * MARGIN), LINES * HEIGHT + 2 * MARGIN
COLOURS = {  # of a light and of a dark window, each with a contrast of 4.5 or more
    "paper": ("#ffffff", "#16191d"),
    "edge": ("#c9d1d9", "#3a4048"),
    "ink": ("#1f2328", "#d8dee4"),
    "cursor": ("#6e7781", "#8b949e"),
    "red": ("#b3261e", "#ff8f87"),
    "green": ("#116329", "#6fdd8b"),
    "brown": ("#7d4e00", "#e3b341"),
    "blue": ("#0550ae", "#79b8ff"),
    "magenta": ("#8250df", "#d2a8ff"),
    "cyan": ("#0a6068", "#56d4dd"),
}
STYLE = """
svg{{{light};color-scheme:light dark}}
@media(prefers-color-scheme:dark){{svg{{{dark}}}}}
text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}}
text{{fill:var(--ink);white-space:pre}}
.bold{{font-weight:bold}}.window{{fill:var(--paper);stroke:var(--edge)}}
{fills}
"""
MOTION = """\
.past{{visibility:hidden}}
@media(prefers-reduced-motion:no-preference){{
text{{animation:{seconds:.2f}s step-end infinite}}
svg:hover text{{animation-play-state:paused}}
{keyframes}
}}
"""


@dataclass(frozen=True)
class Line:
    """A line of the screen, and the time from and until which it looks like this."""

    number: int
    row: Row
    start: float
    end: float


def render(frames: Sequence[Frame], title: str) -> str:
    """Return the picture; without animation it shows the last frame."""
    times = [0.0, *accumulate(frame.seconds for frame in frames)]
    lines = list(_lines(frames, times))
    spans = sorted({(line.start, line.end) for line in lines})
    names = {span: f"t{number}" for number, span in enumerate(spans)}
    total = times[-1]
    keyframes = "\n".join(_keyframes(names[span], span, total) for span in spans)
    texts = (_text(line, names[line.start, line.end], line.end == total) for line in lines)
    return _window(title, MOTION.format(seconds=total, keyframes=keyframes), texts)


def render_still(frame: Frame, title: str) -> str:
    """Return a picture of one frame, with a button that says that the session can be played."""
    texts = (_text(Line(number, row, 0, 0), "", True) for number, row in enumerate(frame.rows) if row)
    x, y = WINDOW[0] / 2, WINDOW[1] / 2
    button = (
        f'<circle class="paper" cx="{x:g}" cy="{y:g}" r="40" stroke="var(--edge)" stroke-width="2"/>',
        f'<path class="blue" d="M{x - 12:g} {y - 20:g}l34 20l-34 20z"/>',
    )
    return _window(title, ".paper{fill:var(--paper)}\n", (*texts, *button))


def _window(title: str, style: str, content: Iterable[str]) -> str:
    width, height = WINDOW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_colours()}{style}</style>",
        f'<rect class="window" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"/>',
        *content,
        "</svg>\n",
    ]
    return "\n".join(parts)


def _lines(frames: Sequence[Frame], times: Sequence[float]) -> Iterator[Line]:
    """Yield what each line of the screen shows, as long as it does not change."""
    for number in range(LINES):
        at = 0
        for row, same in groupby(frame.rows[number] for frame in frames):
            start, at = at, at + len(list(same))
            if row:
                yield Line(number, row, times[start], times[at])


def _keyframes(name: str, span: tuple[float, float], total: float) -> str:
    """Show a line from the start of its time until the end."""
    start, end = (f"{100 * moment / total:.2f}%" for moment in span)
    hidden = "" if span[0] == 0 else "0%{visibility:hidden}"
    after = "" if span[1] == total else f"{end}{{visibility:hidden}}"
    rule = f"@keyframes {name}{{{hidden}{start}{{visibility:visible}}{after}}}"
    return f"{rule}.{name}{{animation-name:{name}}}"


def _colours() -> str:
    light, dark = (";".join(f"--{name}:{pair[at]}" for name, pair in COLOURS.items()) for at in (0, 1))
    fills = "".join(f".{name}{{fill:var(--{name})}}" for name in list(COLOURS)[3:])
    return STYLE.format(light=light, dark=dark, fills=fills)


def _text(line: Line, name: str, last: bool) -> str:
    pieces = "".join(
        f'<tspan class="{style}">{escape(text)}</tspan>' if style else escape(text)
        for text, style in line.row
    )
    length = sum(len(text) for text, _ in line.row) * WIDTH
    top = MARGIN + line.number * HEIGHT + BASE
    classes = name if last else f"past {name}"
    return f'<text class="{classes}" x="{MARGIN}" y="{top}" textLength="{length:g}">{pieces}</text>'
