"""Ready jobs to begin with: show the templates, write one into the project."""

from __future__ import annotations

from pathlib import Path

from openpai_tasks import sdk
from openpai_tasks.tasks.framework.base import say, show, task

COLUMNS = ("name", "description", "parameters")
PARAMETERS = ("name", "default", "about")
WRITTEN = ("file", "template", "name")


@task(positional=["template"], help={"template": "show the parameters of this one, with what they are for"})
def templates(c, template=None, output=None):
    """Show the job templates, this project's own first."""
    here = Path.cwd()
    if template is not None:
        show(c, sdk.templates.find_template(template, here).parameters, PARAMETERS, output)
        return
    found = sdk.templates.list_templates(here)
    sdk.known_names.note_templates(
        path.stem for path in sorted(sdk.templates.packaged_folder().glob("*.yaml"))
    )
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
    chosen = sdk.templates.find_template(template, Path.cwd())
    target = Path(file) if file is not None else None
    written = sdk.templates.write_job_file(
        chosen, target, sdk.templates.parse_template_parameters(parameter or ()), force
    )
    show(c, [written], WRITTEN, output)
    say(f"`job.submit {written.file} --follow` runs it")
