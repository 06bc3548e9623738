"""Ready jobs to begin with: show the templates, write one into the project."""

from __future__ import annotations

from pathlib import Path

from openpai_tasks.lazy import lazy
from openpai_tasks.tasks.framework.base import say, show, task

names = lazy("openpai_tasks.sdk.known_names")
templates_ = lazy("openpai_tasks.sdk.templates.catalog")

COLUMNS = ("name", "description", "parameters")
PARAMETERS = ("name", "default", "about")
WRITTEN = ("file", "template", "name")


@task(positional=["template"], help={"template": "show the parameters of this one, with what they are for"})
def templates(c, template=None, output=None):
    """Show the job templates, this project's own first."""
    here = Path.cwd()
    if template is not None:
        show(c, templates_.find(template, here).parameters, PARAMETERS, output)
        return
    found = templates_.all(here)
    names.saw_templates(path.stem for path in sorted(templates_.packaged().glob("*.yaml")))
    for broken in (item for item in found if item.problem):
        say(f"warning: {broken.path}: {broken.problem}")
    show(c, found, COLUMNS, output)


@task(
    positional=["template", "file"],
    iterable=["parameter"],
    help={
        "template": "a template's name, as `job.templates` shows it, or its file",
        "file": "the job file to write, or a folder for it; the job is named like the file",
        "parameter": "name=value of a parameter; repeat for more",
        "force": "replace the file if there is one",
    },
)
def new(c, template, file=None, parameter=None, force=False, output=None):
    """Write a job file from a template."""
    chosen = templates_.find(template, Path.cwd())
    target = Path(file) if file is not None else None
    written = templates_.write(chosen, target, templates_.given(parameter or ()), force)
    show(c, [written], WRITTEN, output)
    say(f"`job.submit {written.file} --follow` runs it")
