"""Edit clusters.yaml by hand: on a copy that replaces the file only if it parses."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from pathlib import Path

from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass
from openpai_tasks.settings.home import make_private
from openpai_tasks.settings.registry import Registry, edit_hint
from openpai_tasks.text.hints import command

DEFAULTS = ("code", "sensible-editor", "nano", "vim", "vi")
DETACHED = {"code": "--wait", "codium": "--wait", "subl": "--wait", "gvim": "--nofork", "mate": "--wait"}
"""Editors that return at once, and the flag that makes them wait."""

TEMPLATE = """\
# One entry for each cluster, for example:
# - cluster_alias: lab
#   pai_uri: https://pai.example.com
#   user: alice
"""


@dataclass(frozen=True)
class Draft:
    """The copy being edited, and the text of the file it was made from."""

    path: Path
    registry: Registry
    original: str


def begin_edit(registry: Registry) -> Draft:
    """Create a private copy beside the file."""
    text = registry.text()
    make_private(registry.path.parent)
    handle, name = tempfile.mkstemp(prefix="clusters-edit-", suffix=".yaml", dir=registry.path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text or TEMPLATE)
    return Draft(Path(name), registry, text)


def finish_edit(draft: Draft, exit_code: int) -> bool:
    """Replace the file by the copy; False if nothing was changed. An invalid copy is kept for another try."""
    text = _read(draft)
    if text == (draft.original or TEMPLATE):
        draft.path.unlink()
        return False
    if exit_code != 0:
        raise ConfigError(
            f"the editor exited with {exit_code}; nothing was changed, and your text is in {draft.path}"
        )
    if not text.strip() and draft.original.strip():
        raise ConfigError(
            f"{draft.path} is empty, so nothing was changed; "
            f"`{command('cluster.delete')} ALIAS` removes a cluster"
        )
    try:
        draft.registry.rewrite(text, draft.original)
    except ConfigError as err:
        reason = str(err).replace(str(draft.registry.path), "your text").removesuffix(f"; {edit_hint()}")
        raise ConfigError(f"{reason}; nothing was changed, and your text is in {draft.path}") from err
    draft.path.unlink()
    return True


def _read(draft: Draft) -> str:
    try:
        return draft.path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise ConfigError(f"cannot read the edited file {draft.path}: {err}") from err


def editor_command(editor: str) -> list[str]:
    """Return the editor to run: the given one, ``$VISUAL``, ``$EDITOR``, or the first that is installed."""
    chosen = editor or os.environ.get("VISUAL") or os.environ.get("EDITOR") or _installed()
    try:
        argv = shlex.split(chosen)
    except ValueError as err:
        raise ConfigError(f"the editor {chosen!r} is not a command: {err}") from err
    if not argv or not shutil.which(argv[0]):
        raise ConfigError(f"no editor {chosen!r} on this machine; name another with --editor")
    stay = DETACHED.get(Path(argv[0]).name)
    return [*argv, *([stay] if stay and stay not in argv else [])]


def _installed() -> str:
    found = next((name for name in DEFAULTS if shutil.which(name)), None)
    if not found:
        raise ConfigError("no editor found; name one with --editor or $EDITOR")
    return found
