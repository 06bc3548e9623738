"""Hooks of jobs: kept by clusters that can, else notified by the command that follows a job."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from openpai_tasks import hooks as delivery
from openpai_tasks.backends.base import Backend, unsupported
from openpai_tasks.errors import ConfigError, Unreachable
from openpai_tasks.hooks import hook
from openpai_tasks.hooks.hook import END, Hook, JobHooks
from openpai_tasks.hooks.messages import Facts, worst_state
from openpai_tasks.protocol import states
from openpai_tasks.protocol.models import JobInfo
from openpai_tasks.sdk.amounts import read
from openpai_tasks.sdk.jobs.lookup import command_for
from openpai_tasks.settings.config import Settings
from openpai_tasks.settings.credentials import hidden_environment
from openpai_tasks.text.hints import command

Say = Callable[[str], None]


def read_hooks(value: object) -> tuple[Hook, ...]:
    """Read the value of ``notify``: none unless it is an address."""
    if not isinstance(value, str):
        return ()
    return tuple(one.resolved() for one in read("notify", hook.parse_all, value))


def hooks_to_notify(client: Backend, given: JobHooks, is_watched: bool, is_asked: bool) -> tuple[Hook, ...]:
    """Return the hooks that this program has to notify, as the cluster keeps none and the jobs are watched.

    Raise if nobody would notify hooks that were asked for.
    """
    if client.capabilities.hooks or not given.hooks:
        return ()
    if is_asked and not is_watched:
        refusal = unsupported(client, "hooks")
        refusal.field = "notify"
        raise refusal
    return given.hooks if is_watched else ()


def report_unused(client: Backend, given: JobHooks, say: Say) -> None:
    """Say that nobody notifies the hooks of the settings, if so."""
    if given.hooks and not client.capabilities.hooks:
        say(f"{client.product} keeps no hooks: nobody is notified of the job, unless you follow it")


def notify_all(hooks: Iterable[Hook], facts: Facts, say: Say) -> None:
    """Notify the hooks of the end of jobs, and say which were notified."""
    for one in hooks:
        if one.is_due(facts.state):
            try:
                delivery.deliver(one, facts, hidden_environment(), secrets.token_hex(16))
                say(f"notified {one.label}")
            except delivery.DeliveryFailed as err:
                say(f"warning: {one.label} was not notified: {err}")


def job_facts(client: Backend, job: JobInfo) -> Facts:
    """Return the facts about a job that has ended."""
    cause = (job.cause or job.message) if job.state == states.FAILED else ""
    link = command_for(client, "job.why", job) if client.capabilities.hooks else client.job_page(job)
    return Facts(END, job.name, job.state, job.user, cause, job.exit_code, job.duration, link)


def summary_facts(kind: str, name: str, found: Sequence[str]) -> Facts:
    """Return the facts about several jobs that have ended in these states."""
    counts: Mapping[str, int] = Counter(found)
    link = command("job.results", name) if kind == "sweep" else command("job.list")
    return Facts(END, name, worst_state(counts), link=link, jobs=dict(counts), kind=kind)


def setting_hooks(settings: Settings) -> tuple[Hook, ...]:
    """Return the hooks of all jobs."""
    return tuple(map(hook.parse, settings.notify))


def send_trial(hooks: Sequence[Hook], say: Say) -> None:
    """Send a trial message to each hook, from this machine; raise if one fails."""
    if not hooks:
        raise ConfigError(f"there are no hooks: name an address, `{command('config.notify')} ADDRESS --test`")
    facts = Facts(END, "trial", states.SUCCEEDED, link=command("config.notify"), kind="trial")
    failed = []
    for one in hooks:
        try:
            delivery.deliver(one.resolved(), facts, hidden_environment(), secrets.token_hex(16))
            say(f"notified {one.label}")
        except delivery.DeliveryFailed as err:
            failed.append(f"{one.label} was not notified: {err}")
    if failed:
        raise Unreachable("; ".join(failed))
