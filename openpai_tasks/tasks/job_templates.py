"""List job templates, and write job files from them."""

from __future__ import annotations

from pathlib import Path

from openpai_tasks import sdk
from openpai_tasks.hints import command
from openpai_tasks.tasks.framework.base import say, show
from openpai_tasks.tasks.framework.task import task

COLUMNS = ("name", "description", "parameters")
PARAMETERS = ("name", "default", "about")
WRITTEN = ("file", "template", "name")


@task(positional=["template"], help={"template": "show the parameters of this template"})
def templates(c, template=None, output=None):
    """List the job templates, this project's own first."""
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
        "template": "name of a template, as job.templates lists it, or its file",
        "file": "the job file to write, or a folder for it; the job gets the file's name",
        "parameter": "parameter of the template, name=value; repeat for more",
        "force": "overwrite an existing file",
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
    say(f"`{command('job.submit', str(written.file), '--follow')}` runs it")
