"""Submit, watch and stop jobs."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from openpai_tasks import render, sdk
from openpai_tasks import settings as user_settings
from openpai_tasks.tasks import views
from openpai_tasks.tasks.framework import secrets, terminal
from openpai_tasks.tasks.framework.base import command_text, connect, say, settings, show, shows_table
from openpai_tasks.tasks.framework.screen import LiveView
from openpai_tasks.tasks.framework.task import typed_task as task
from openpai_tasks.tasks.views.job_flags import (
    COMMAND_HELP,
    FLAGS,
    choose_cluster,
    job_options,
    job_request,
    job_settings,
    job_task,
    notify_option,
)
from openpai_tasks.text import hints
from openpai_tasks.text.plurals import counted, name_some

if TYPE_CHECKING:
    from openpai_tasks.protocol.models import JobInfo
    from openpai_tasks.sdk.jobs.lookup import UserSummary

COLUMNS = ("name", "state", "virtual_cluster", "submitted", "duration", "exit_code", "retries", "cause")
IDLE_COLUMNS = ("name", "state", "virtual_cluster", "submitted", "duration", "gpus", "gpus_idle")
SUMMARY = ("user", "jobs", "running", "waiting", "failed", "gpus", "gpu_hours")
TEMPLATES = ("name", "description", "parameters")
TEMPLATE_PARAMETERS = ("name", "default", "about")
WRITTEN = ("file", "template", "name")

NAMES_HELP = "jobs: names or their beginnings, patterns such as 'train-*', sweeps, @last"
PARAMETER_HELP = "parameter of the template, name=value; repeat for more"
RESULTS_HELP = "jobs, sweeps, or patterns such as 'train-*'"
TABLE_HELP = "output format: table, csv, json or yaml"
OTHER_HELP = "a job's name, or cluster:name for a job on another cluster"
FOLLOW_HELP = {
    "follow": "show the output until the job ends, and exit with its exit code",
    "plain": "with --follow: without colours and other terminal escapes",
}
KEEP_FAILED_HELP = (
    "keep the environment of a failed task this long (30m, 1h) for container.ssh; turns on --ssh"
)
RESUBMIT_HELP = {
    "job-name": "name of the new job; each $ becomes random letters (default: made from the old one)",
    "update": "change its document, path=value; repeat for more",
    "fresh": "start from the beginning, without the checkpoints of the job, which are kept",
}


@task(
    name="list",
    default=True,
    help={
        "user": "whose jobs; 'all' for everyone's (default: yours)",
        "state": "only jobs in these states, such as RUNNING,WAITING",
        "virtual-cluster": "only jobs in this virtual cluster",
        "keyword": "only jobs with this in their name",
        "limit": "how many jobs to list (default: 100; all for --summary)",
        "fields": "only these fields, such as name,state, including fields that the table omits",
        "watch": "update the list until Ctrl-C; in a pipe, a line for each change",
        "summary": "a line for each user instead: jobs, GPUs and GPU-hours",
        "idle": "only running jobs whose GPUs are idle, with for how long",
    },
)
def list_(
    c: Context,
    user: str | None = None,
    state: str | None = None,
    virtual_cluster: str | None = None,
    keyword: str | None = None,
    limit: int | None = None,
    fields: str | None = None,
    watch: bool = False,
    summary: bool = False,
    idle: bool = False,
    absolute: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """List jobs, newest first."""
    wanted = sdk.jobs.parse_states(state) if state else None
    listed = IDLE_COLUMNS if idle else COLUMNS
    columns = SUMMARY if summary else listed if user is None else ("user", *listed)
    most = limit if limit is not None or summary else 100
    client = connect(c, cluster_alias)

    def ask() -> Sequence[JobInfo | UserSummary]:
        found = sdk.jobs.list_jobs(client, user, wanted, virtual_cluster, keyword, most, idle=idle)
        return sdk.jobs.summarise_users(found) if summary else found

    if watch:
        views.following.watch_list(sdk.jobs.watch_list(client, ask), columns, fields, output, not absolute)
    elif fields:
        show(c, *views.following.pick_fields(ask(), fields), output, ages=not absolute)
    else:
        show(c, ask(), columns, output, ages=not absolute)


@task(help={"name": NAMES_HELP})
def status(
    c: Context,
    name: list[str],
    absolute: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Show jobs and their tasks."""
    found = sdk.sweeps.describe_jobs(connect(c, cluster_alias), name)
    show(c, found[0] if len(found) == 1 else found, render.status, output, ages=not absolute)


@task()
def config(c: Context, name: str, cluster_alias: str | None = None, output: str | None = None) -> None:
    """Show the document that a job was submitted with, secrets masked."""
    show(c, sdk.jobs.submitted_document(connect(c, cluster_alias), name), render.document, output or "yaml")


@task(
    help={
        "name": NAMES_HELP,
        "follow": "follow the output until the jobs end, and exit with the exit code of the first failure",
        "role": "only this task role",
        "index": "only the task with this index",
        "attempt": "only this attempt of the job, counted from 0 (default: the latest)",
        "stdout": "only stdout",
        "stderr": "only stderr",
        "lines": "only this many lines from the end of each task",
        "plain": "without colours and other terminal escapes",
        "timestamps": "with the time at which each line was written, if the cluster records it",
        "structured": "only the log records of the program, of all tasks and attempts, by time",
        "level": "with --structured: only records of this level or above, such as WARNING",
        "since": "with --structured: only records since then: 90s, 1h30m or 2026-01-31T12:00",
        "grep": "with --structured: only records in which this regular expression is found",
        "output": "with --structured: json for JSON lines",
    },
)
def logs(
    c: Context,
    name: list[str],
    follow: bool = False,
    role: str | None = None,
    index: int | None = None,
    stdout: bool = False,
    stderr: bool = False,
    lines: int | None = None,
    attempt: int | None = None,
    plain: bool = False,
    timestamps: bool = False,
    structured: bool = False,
    level: str | None = None,
    since: str | None = None,
    grep: str | None = None,
    notify: str | None = None,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Show the output of jobs, or the log records in it."""
    hooks = sdk.jobs.read_hooks(notify)
    views.following.check_record_flags(structured, timestamps, output, level=level, since=since, grep=grep)
    records = sdk.logs.parse_filter(level, since, grep)
    client = connect(c, cluster_alias)
    which = sdk.logs.LogChoice(role, index, sdk.logs.choose_stream(stdout, stderr), attempt, timestamps)
    with (
        views.submitting.job_continues(name, follow),
        sdk.sweeps.ahead(client, [] if follow else name, "log"),
    ):
        chosen = views.following.choose(client, name) if follow else sdk.sweeps.choose_jobs(client, name)
        if structured:
            one = views.following.require_one(chosen, "--structured")
            how = (client, one.found, which, follow, lines, sdk.diagnosis.JobReporter(client, say), records)
            found = sdk.logs.read_structured(*how, sdk.files.mounts(settings(c)), output == "json")
            terminal.write_bytes(views.following.encode_records(found, output, follow))
        else:
            views.following.write_logs(client, [one.found for one in chosen], which, follow, lines, plain)
    if follow:
        ended = sdk.jobs.wait_all(client, [one.name for one in chosen])
        views.following.conclude(client, ended, notify, sdk.files.mounts(settings(c)), hooks)


@task(help={"names": NAMES_HELP})
def stop(
    c: Context,
    names: list[str],
    yes: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Stop jobs, by name or pattern."""
    client = connect(c, cluster_alias)
    chosen = sdk.sweeps.choose_jobs(client, names, unfinished=True)
    views.following.confirm_stop(chosen, yes)
    if ended := [one.name for one in chosen if one.job.final]:
        say(f"already ended: {name_some(ended)}")
    stopped = sdk.jobs.stop_all(client, [one.job for one in chosen])
    show(c, stopped, views.submitting.SUBMITTED, output)


@task(help={"name": "name of a waiting job", "first": "before your other waiting jobs"})
def move(
    c: Context, name: str, first: bool = False, cluster_alias: str | None = None, output: str | None = None
) -> None:
    """Move a waiting job to the front of your waiting jobs."""
    moved = sdk.jobs.move(connect(c, cluster_alias), name, first)
    show(c, [moved], views.submitting.MOVED, output)


@task(help={"name": NAMES_HELP, "timeout": "give up after this many seconds (exit code 124)"})
def wait(
    c: Context,
    name: list[str],
    timeout: float | None = None,
    notify: str | None = None,
    absolute: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Wait for jobs to end, and exit with the exit code of the first that failed."""
    hooks = sdk.jobs.read_hooks(notify)
    client = connect(c, cluster_alias)
    with views.submitting.job_continues(name):
        names = [one.name for one in views.following.choose(client, name, timeout)]
        jobs = sdk.jobs.wait_all(client, names, timeout)
    show(c, jobs, COLUMNS, output, ages=not absolute)
    views.following.conclude(client, jobs, notify, hooks=hooks)


@task(name="connect")
def connect_(
    c: Context, name: str, notify: str | None = None, absolute: bool = False, cluster_alias: str | None = None
) -> None:
    """Watch a job's status until it ends."""
    hooks = sdk.jobs.read_hooks(notify)
    client = connect(c, cluster_alias)
    with views.submitting.job_continues(name), LiveView(sys.stdout, ages=not absolute) as screen:
        one = views.following.require_one(views.following.choose(client, name), "job.connect")
        for job in sdk.jobs.watch(client, one.name):
            screen.show(render.status(job), render.progress(job))
    views.following.conclude(client, [job], notify, hooks=hooks)


@job_task(
    *FLAGS,
    name="sub",
    positional=["command"],
    help={
        **FOLLOW_HELP,
        "command": COMMAND_HELP,
        "ssh": "allow ssh logins with your key, for container.ssh and similar (docs/containers.md)",
        "keep-failed": KEEP_FAILED_HELP,
        "template": "use this template (see job.templates) instead of a plain job",
        "parameter": PARAMETER_HELP,
        "sweep": "name=value,value,...: a job per value, {name} in the command; repeat for a grid",
        "sweep-file": "a job per row of this CSV, JSON or YAML file",
        "max-parallel": "how many jobs of a sweep may be unfinished at a time",
        "detach": "return as soon as all jobs of a sweep are submitted",
    },
)
def submit_command(
    c: Context,
    command: str | None = None,
    *,
    flags: dict[str, Any],
    ssh: bool = False,
    keep_failed: str | None = None,
    template: str | None = None,
    parameter: list[str] | None = None,
    sweep: list[str] | None = None,
    sweep_file: str | None = None,
    max_parallel: int | None = None,
    detach: bool = False,
    follow: bool = False,
    plain: bool = False,
    notify: str | None = None,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Submit a command as a job, or as a sweep of jobs."""
    more = {"command": command_text(command), "template": template, "parameter": parameter, "ssh": ssh}
    more |= {"keep_failed": keep_failed}
    options, here = job_options(flags, **more, **notify_option(notify)), Path.cwd()
    cluster_alias = choose_cluster(c, cluster_alias, options)
    given = job_settings(c, options, cluster_alias)
    request = sdk.templates.build_request(options, given, secrets.job_secret, here)
    found = sdk.sweeps.parse_points(sweep or (), sweep_file)
    client = connect(c, cluster_alias)
    packed, files = sdk.jobs.pack_files(client, request, here, sdk.files.mounts(given))
    only = views.submitting.is_preview(c, flags)
    if found:
        names = {"is_named": bool(request.name), "has_free_names": client.capabilities.free_names}
        planned = sdk.sweeps.plan_sweep(packed, files, found, **names)
        views.sweeps.run_sweep(c, client, planned, max_parallel, detach, only, output, notify)
    else:
        views.submitting.send(c, client, sdk.jobs.build(packed, files), follow, only, output, plain, notify)


@job_task(
    *("update", "tag", "after", "after_any", "after_failed", "preview"),
    help={**FOLLOW_HELP, "file": "a job file: v2 YAML or v1 JSON"},
)
def submit(
    c: Context,
    file: str,
    *,
    flags: dict[str, Any],
    follow: bool = False,
    plain: bool = False,
    notify: str | None = None,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Submit a job file."""
    sdk.jobs.load_document(Path(file))  # report mistakes in the file before contacting the cluster
    if cluster_alias == user_settings.registry.ANY:
        text = sdk.jobs.read_job_file(Path(file), sdk.jobs.build_changes(job_options(flags), str)).text
        demand = sdk.jobs.Demand(text)
        cluster_alias = sdk.jobs.choose_cluster(settings(c), lambda alias: demand, say)
    client = connect(c, cluster_alias)
    takes_v1 = client.capabilities.v1_documents
    options = job_options(flags, **notify_option(notify))
    read = sdk.jobs.read_job_file(Path(file), job_request(options, settings(c)), takes_v1)
    if read.converted:
        say(f"{file} is a v1 job; submitting it as v2")
    for change in read.renamed:
        say(f"renamed for protocol v2: {change}")
    only = views.submitting.is_preview(c, flags)
    views.submitting.send(c, client, read, follow, only, output, plain, notify)


@task(
    help={
        "names": RESULTS_HELP,
        "sort": "sort by this value of the results or the sweep, highest first",
        "lowest": "with --sort: lowest first, as for a loss",
        "best": "with --sort: only this many jobs",
        "output": TABLE_HELP,
    },
)
def results(
    c: Context,
    names: list[str],
    sort: str | None = None,
    lowest: bool = False,
    best: int | None = None,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Collect each job's result: the last JSON line it printed, or its result.json."""
    views.sweeps.check_sorting(sort, lowest, best)
    mounted = sdk.files.mounts(settings(c))
    found = sdk.sweeps.gather_results(connect(c, cluster_alias), names, Path.cwd(), mounted)
    if sort is not None:
        found = sdk.sweeps.sort_results(found, sort, lowest, best)
    show(c, found, render.flat_table, output)


@task(
    help={
        "names": RESULTS_HELP,
        "metric": "only metrics with this name, or pattern such as 'val_*'; repeat for more",
        "plot": "draw the metrics",
        "by": "x axis of the plot: step (the default), time or epoch",
        "picture": "write the plot to this file, as SVG",
        "follow": "update the view until the jobs end",
        "output": f"{TABLE_HELP}; all but the table have every point",
    },
)
def metrics(
    c: Context,
    names: list[str],
    metric: list[str] | None = None,
    plot: bool = False,
    picture: str | None = None,
    by: str | None = None,
    follow: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Show the metrics that jobs recorded: last and best values, or a plot by step, time or epoch."""
    views.sweeps.check_picture(picture)
    views.sweeps.check_axis(by, plot or picture is not None)
    is_thinned = shows_table(c, output)
    how = (connect(c, cluster_alias), names, Path.cwd(), sdk.files.mounts(settings(c)), is_thinned)
    if follow:
        found = views.sweeps.watch_metrics(sdk.sweeps.follow_metrics(*how), metric or (), plot, by)
    else:
        found = sdk.sweeps.gather_metrics(*how)
    chosen = sdk.jobs.select_metrics(found, metric or ())
    views.sweeps.report_no_metrics(found, chosen)
    charts = views.sweeps.metric_charts(chosen, by, found) if plot or picture else []
    views.sweeps.write_picture(charts, picture)
    rows = [] if is_thinned else sdk.jobs.metric_rows(chosen)
    show(c, rows, lambda _: views.sweeps.metrics_view(chosen, charts if plot else ()), output)


@task(help={"files": "job files: v2 YAML or v1 JSON"})
def validate(c: Context, files: list[str], output: str | None = None) -> None:
    """Check job files without a cluster."""
    verdicts = [sdk.jobs.validate_file(Path(file)) for file in files]
    show(c, verdicts, render.verdicts, output)
    sdk.jobs.check_verdicts(verdicts)


@task(help={"settings": "print the schema of the settings in an invoke.yaml instead"})
def schema(c: Context, settings: bool = False) -> None:
    """Print the JSON Schema of job files, for editors."""
    found = sdk.templates.settings_schema() if settings else sdk.templates.job_schema()
    terminal.put(json.dumps(found, indent=2))


@task(positional=["template"], help={"template": "show the parameters of this template"})
def templates(c: Context, template: str | None = None, output: str | None = None) -> None:
    """List the job templates, this project's own first."""
    here = Path.cwd()
    if template is not None:
        show(c, sdk.templates.find_template(template, here).parameters, TEMPLATE_PARAMETERS, output)
        return
    found = sdk.templates.list_templates(here)
    sdk.known_names.note_templates(
        path.stem for path in sorted(sdk.templates.packaged_folder().glob("*.yaml"))
    )
    for broken in (item for item in found if item.problem):
        say(f"warning: {broken.path}: {broken.problem}")
    show(c, found, TEMPLATES, output)


@task(
    positional=["template", "file"],
    help={
        "template": "name of a template, as job.templates lists it, or its file",
        "file": "the job file to write, or a folder for it; the job gets the file's name",
        "parameter": PARAMETER_HELP,
        "force": "overwrite an existing file",
    },
)
def new(
    c: Context,
    template: str,
    file: str | None = None,
    parameter: list[str] | None = None,
    force: bool = False,
    output: str | None = None,
) -> None:
    """Write a job file from a template."""
    chosen = sdk.templates.find_template(template, Path.cwd())
    target = Path(file) if file is not None else None
    given = sdk.jobs.read_options({"parameter": parameter}).parameter
    written = sdk.templates.write_job_file(chosen, target, given, force)
    show(c, [written], WRITTEN, output)
    say(f"`{hints.command('job.submit', str(written.file), '--follow')}` runs it")


@job_task(
    *("job_name", "update", "gpu", "secret", "after", "after_any", "after_failed", "priority"),
    *("max_time", "requeue_on_timeout", "grace", "idle_stop"),
    help={
        **RESUBMIT_HELP,
        **FOLLOW_HELP,
        "keep-failed": KEEP_FAILED_HELP,
        "gpu": "GPUs of each task that uses any",
        "secret": "name of a secret of the job, to read from your environment; repeat for more",
        "to": "the cluster to run it on (default: the same)",
        "resume": "continue at its last checkpoint, the default without --exact; fail if it has none",
        "exact": "repeat the recorded command, files and settings (./.openpai/jobs), or explain why not",
        "preview": FLAGS["preview"][1],
        "cluster-alias": "the cluster that has the job",
        "with-dependents": "also submit your jobs again that were stopped with it, to wait for the new one",
    },
)
def resubmit(
    c: Context,
    name: str,
    *,
    flags: dict[str, Any],
    to: str | None = None,
    fresh: bool = False,
    resume: bool = False,
    exact: bool = False,
    follow: bool = False,
    plain: bool = False,
    notify: str | None = None,
    keep_failed: str | None = None,
    preview: bool = False,
    with_dependents: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Submit a job again under a new name, with changes or exactly as it was."""
    start = sdk.jobs.choose_start(fresh, resume)
    options = job_options(flags, keep_failed=keep_failed, **notify_option(notify))
    request = sdk.templates.build_changes(options, settings(c), secrets.job_secret)
    source = connect(c, cluster_alias)
    target = connect(c, to) if to else source
    mounted, ask = sdk.files.mounts(settings(c)), secrets.document_secret
    submission = sdk.jobs.repeat(
        *(source, target, name, request, Path.cwd(), exact, ask, say, mounted),
        resume=start,
        with_dependents=with_dependents,
    )
    only = views.submitting.is_preview(c, {"preview": preview})
    views.submitting.send(c, target, submission, follow, only, output, plain, notify)


@task(
    help={
        "names": RESULTS_HELP,
        "all": "also show values that are the same in all jobs",
        "output": f"{TABLE_HELP}; all but the table have every value",
    }
)
def compare(
    c: Context,
    names: list[str],
    all: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Compare up to 50 jobs: parameters, resources, and the last and best value of each metric."""
    mounted = sdk.files.mounts(settings(c))
    found = sdk.sweeps.compare(connect(c, cluster_alias), names, Path.cwd(), mounted)
    show(c, list(found.jobs), lambda _: views.sweeps.comparison_view(found, all), output)


@task(
    help={
        "first": OTHER_HELP,
        "second": OTHER_HELP,
        "all": "include the shell that is generated around the jobs' own commands, as -o json does",
        "code": "compare the files that they were sent with instead",
    }
)
def diff(
    c: Context,
    first: str,
    second: str,
    all: bool = False,
    code: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """Show how the documents of two jobs differ, or their sources."""
    (left, a), (right, b) = sdk.jobs.parse_reference(first), sdk.jobs.parse_reference(second)
    clients = connect(c, left or cluster_alias), connect(c, right or cluster_alias)
    if code:
        found = sdk.jobs.compare_sources(clients[0], a, clients[1], b, sdk.files.mounts(settings(c)))
    else:
        found = sdk.jobs.compare_jobs(clients[0], a, clients[1], b, is_folded=not (all or output))
    if found.same:
        say(f"{found.a} and {found.b} {'have the same sources' if code else 'are the same'}")
    show(c, found, render.difference, output)


@task(
    help={
        "to": "write the files into this folder, which must be new, empty, or have just these files",
        "diff": "show how they differ from the commit that they were made from, in this folder's repository",
    }
)
def sources(
    c: Context,
    name: str,
    to: str | None = None,
    diff: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """List the files that a job was sent with, or write them to a folder."""
    found = sdk.jobs.find_sources(connect(c, cluster_alias), name, sdk.files.mounts(settings(c)))
    if found.origin:
        say(found.origin)
    if to is not None:
        sdk.jobs.write_sources(found, Path(to))
    if diff:
        compared = sdk.jobs.compare_with_commit(found, Path.cwd())
        if compared.same:
            say(f"the files are those of {compared.a}")
        show(c, compared, render.difference, output)
    else:
        show(c, found.rows, ("name", "size"), output)


@task(
    help={
        "name": NAMES_HELP,
        "to": "copy the files into this folder; into DIR/JOB for several jobs, or for `--to DIR/`",
        "all": "include checkpoints, metrics and log records of the runtime, in .pai",
    },
)
def outputs(
    c: Context,
    name: list[str],
    to: str | None = None,
    all: bool = False,
    cluster_alias: str | None = None,
    output: str | None = None,
) -> None:
    """List or download the files that jobs wrote to $PAI_OUTPUT_DIR."""
    client, mounted = connect(c, cluster_alias), sdk.files.mounts(settings(c))
    with sdk.sweeps.ahead(client, name, "document"):
        jobs = [one.found for one in sdk.sweeps.choose_jobs(client, name)]
        found = views.transfers.find_outputs(client, jobs, mounted)
    chosen = found if all else [one.without_runtime_files for one in found]
    if hidden := sum(len(one.files) for one in found) - sum(len(one.files) for one in chosen):
        say(f"{counted(hidden, 'file')} of the runtime left out; --all includes them")
    for one in chosen:
        if one.left_out:
            say(f"left out, not the job's own files: {', '.join(one.left_out)}")
        if to is not None and (one.files or len(jobs) == 1):
            is_inner = len(jobs) > 1 or to.endswith("/")
            views.transfers.download(one, Path(to) / one.job if is_inner else Path(to))
    columns = ("name", "size", "modified")
    if len(jobs) == 1:
        show(c, chosen[0].rows, columns, output)
    else:
        rows = [{"job": one.job, **dataclasses.asdict(row)} for one in chosen for row in one.rows]
        show(c, rows, ("job", *columns), output)


@task(name="open", help={"no-browser": "only print the address"})
def open_(c: Context, name: str, no_browser: bool = False, cluster_alias: str | None = None) -> None:
    """Open a job's page in the web portal, and print its address."""
    client = connect(c, cluster_alias)
    views.browsing.open_job(client, sdk.jobs.find(client, name), no_browser)


@task(
    help={
        "name": NAMES_HELP,
        "port": "port to listen on, on this machine only (default: a free one)",
        "no-browser": "only print the address",
    }
)
def tensorboard(
    c: Context, name: list[str], port: int = 0, no_browser: bool = False, cluster_alias: str | None = None
) -> None:
    """Show the event files of jobs in TensorBoard, until Ctrl-C."""
    client, mounted = connect(c, cluster_alias), sdk.files.mounts(settings(c))
    with sdk.tensorboard.TensorBoard(client, name, mounted, port, say) as board:
        views.browsing.show_tensorboard(board, no_browser)


@task(help={"name": NAMES_HELP})
def why(c: Context, name: list[str], cluster_alias: str | None = None, output: str | None = None) -> None:
    """Explain why jobs are waiting or have failed, and what to do."""
    client = connect(c, cluster_alias)
    mounted = sdk.files.mounts(settings(c))
    with sdk.sweeps.ahead(client, name, "events", "document", "log"):
        jobs = sdk.sweeps.choose_jobs(client, name)
        found = [sdk.diagnosis.why(client, one.found, mounted) for one in jobs]
    show(c, found[0] if len(found) == 1 else found, render.explanation, output)
