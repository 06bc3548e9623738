"""The command line of the server: parse flags, then serve until TERM or INT."""

from __future__ import annotations

import argparse
import contextlib
import os
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

from openpai_tasks import exits
from openpai_tasks.errors import ConfigError, PaiError
from openpai_tasks.files import shortages
from openpai_tasks.loopback import logs, service
from openpai_tasks.net.addresses import LAST_PORT
from openpai_tasks.protocol.routes import PADDLECLOUD_PREFIX
from openpai_tasks.server.api import app, bodies
from openpai_tasks.server.api.formats.profiles import PROFILES, UNION
from openpai_tasks.server.api.rates import parse_rate
from openpai_tasks.server.cluster import ClusterOptions, EmbeddedCluster, parse_folder, parse_virtual_cluster
from openpai_tasks.server.paddlecloud.app import PaddleCloudApp
from openpai_tasks.server.ssh import services
from openpai_tasks.settings.engines import DEFAULT, ENFORCE, REFUSE_GPUS, REFUSE_LARGER, find_engine
from openpai_tasks.settings.keeping import EVERYTHING

MOST_KILOBYTES = 16 * 1024  # parsing a document of this size takes a minute
LONGEST_HOME = 504 - len("/cluster.db")  # bytes, beyond which SQLite opens no database with a log


def main(argv: Sequence[str] | None = None) -> int:
    flags = _parser().parse_args(argv)
    logs.start()
    try:
        options = ClusterOptions(
            home=flags.home.absolute(),
            engine=flags.engine,
            enforce=flags.enforce,
            virtual_clusters=dict(map(parse_virtual_cluster, flags.virtual_cluster)),
            profile=flags.profile,
            rates=dict(map(parse_rate, flags.rate_limit)),
            ssh=flags.ssh,
            body_limit=flags.body_limit * 1024,
            keep=flags.keep,
            engine_options=dict(flags.engine_option),
            folders=dict(map(parse_folder, flags.storage)),
            give_up_jobs=flags.give_up_jobs,
        )
        find_engine(options.engine).read_options(options.engine_options)  # before anything is written
        run(options, flags.port)
    except PaiError as err:
        return _fail(str(err), err.exit_code)
    except Exception as err:
        if not (shortage := shortages.find_shortage(err)):
            raise
        return _fail(shortages.describe(shortage), exits.FAILED)
    return 0


def _fail(why: str, code: int) -> int:
    with contextlib.suppress(OSError):  # the disk with the log may be full
        print(f"error: {why}", file=sys.stderr)
    return code


def run(options: ClusterOptions, port: int) -> None:
    """Serve until TERM or INT; take the lock first, so that only one server uses the folder."""
    try:
        service.hold_lock(options.home)
        sockets = service.bind(options.home, port)
        cluster = EmbeddedCluster(options)
    except (OSError, sqlite3.Error) as err:
        lost = isinstance(err, sqlite3.DatabaseError) and not isinstance(err, sqlite3.OperationalError)
        if (length := len(os.fsencode(options.home.absolute()))) > LONGEST_HOME:
            most = f"SQLite can use {LONGEST_HOME} at most: set OPENPAI_HOME to a shorter path"
            raise ConfigError(f"the path of its folder has {length} bytes, and {most}") from err
        hint = "; to start without its jobs, move cluster.db away" if lost else ""
        raise ConfigError(f"cannot use the folder {options.home}: {err}{hint}") from err
    try:
        private = service.bind_socket(options.home)  # for users of other machines who come by ssh
        cluster.start()
        facts = {
            "engine": options.engine,
            "enforce": options.enforce,
            "profile": options.profile,
            "ssh": options.ssh,
            "limits": str(cluster.context.engine.memory),
            "body_limit": options.body_limit // 1024,
            "keep": options.keep,
            "engine_options": options.engine_options,
            "storages": [f"{name}={path}" for name, path in options.folders.items()],
            "socket": private.getsockname(),
        }
        others = {PADDLECLOUD_PREFIX: PaddleCloudApp(cluster.context)}
        service.serve(app.build(cluster.context, others), [*sockets, private], options.home, facts)
    finally:
        cluster.close()


def _port(text: str) -> int:
    return _number("port", text, 0, LAST_PORT)


def _kilobytes(text: str) -> int:
    return _number("body limit", text, 1, MOST_KILOBYTES)


def _number(what: str, text: str, least: int, most: int) -> int:
    if not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"invalid {what} {text}: expected a number from {least} to {most}")
    return int(text)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"invalid option {text!r}: expected NAME=VALUE")
    return name, value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m openpai_tasks.server", description="The embedded cluster, on loopback only."
    )
    parser.add_argument("--home", type=Path, required=True, metavar="DIR", help="the folder of the cluster")
    parser.add_argument("--port", type=_port, default=0, metavar="N", help="default: the last port, or any")
    parser.add_argument(
        "--enforce",
        nargs="?",
        const=REFUSE_LARGER,
        default=REFUSE_GPUS,
        choices=list(ENFORCE),
        help="which jobs to refuse that ask for more than there is; default: %(default)s, if there are some",
    )
    parser.add_argument("--engine", default=DEFAULT, metavar="NAME", help="what runs tasks")
    parser.add_argument(
        "--engine-option",
        type=_pair,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the engine; repeat for more",
    )
    parser.add_argument(
        "--virtual-cluster",
        action="append",
        default=[],
        metavar="NAME=CPU,MEMORYMB,GPU",
        help="a part of the machine; repeat for more",
    )
    parser.add_argument(
        "--profile",
        default=UNION,
        choices=list(PROFILES),
        help="the OpenPAI version to emulate; default: the union of all",
    )
    parser.add_argument(
        "--ssh",
        default=services.AUTO,
        choices=list(services.CHOICES),
        help="what serves ssh to tasks; default: the best that is installed",
    )
    parser.add_argument(
        "--body-limit",
        type=_kilobytes,
        default=bodies.LIMIT // 1024,
        metavar="KB",
        help="the largest size of a request; default: %(default)s, as in OpenPAI",
    )
    parser.add_argument(
        "--keep",
        default=EVERYTHING,
        metavar="LIMITS",
        help="which finished jobs to keep, such as 90d,10000,10GB; default: all",
    )
    parser.add_argument(
        "--storage",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="a folder that all nodes share, as a storage; repeat for more",
    )
    parser.add_argument(
        "--give-up-jobs", action="store_true", help="end unfinished jobs of another engine without asking it"
    )
    parser.add_argument(
        "--rate-limit",
        action="append",
        default=[],
        metavar="api|list|submit=COUNT/[N]s|min|h",
        help="instead of the profile's rate limit; repeat for more",
    )
    return parser
