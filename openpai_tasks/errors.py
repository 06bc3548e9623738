"""All errors that we raise, with the exit codes of commands that end with them.

PaiError                 base, never raised itself
├── ConfigError          settings wrong or missing                 120
│   └── InvalidOption    an option of a command or call (.field)
├── ProtocolError        an invalid job document                   120
├── Unreachable          no answer from the cluster                121
│   └── Lost             a connection that broke
├── ApiError             a refusal of the server (.status .code)   122
│   ├── Denied           401 and 403
│   ├── NotFound         404
│   │   ├── NoSuchPath   a missing file or folder                  123
│   │   └── Unsupported  what this cluster cannot do               120
│   ├── Conflict         409
│   └── TooManyRequests  429 (.retry_after)
├── PathError            a path that cannot be used (also OSError) 123
├── TimedOut             a timeout                                 124
└── JobFailed            the job failed or was stopped             the job's own exit code
"""

from __future__ import annotations

from openpai_tasks import exits
from openpai_tasks.text.hints import option
from openpai_tasks.text.plain import one_line


class PaiError(Exception):
    """Base class; the message is one line: what went wrong, with which value, and what to do."""

    exit_code = exits.FAILED
    field = ""  # the option that is wrong, by its name in Python: ``max_time``
    is_given_up = False  # has been retried already
    is_outage = False  # the server does not answer now, but may answer later

    def __str__(self) -> str:
        return one_line(super().__str__())

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the attributes instead of calling the class, whose arguments differ."""
        return _unpickle, (type(self), self.args), self.__dict__


def _unpickle(kind: type[PaiError], args: tuple[object, ...]) -> PaiError:
    err = kind.__new__(kind)
    err.args = args
    return err


class ConfigError(PaiError):
    """Settings or arguments are wrong or missing."""

    exit_code = exits.BAD_INPUT


class InvalidOption(ConfigError):
    """An option has a value that cannot be used; ``field`` is its name in Python.

    The message is the name as users know it, followed by the problem: ``must be ...``, or ``: no such ...``.
    """

    def __init__(self, field: str, problem: str) -> None:
        name = option(field).removesuffix("=")
        super().__init__(f"{name}{problem}" if problem.startswith(":") else f"{name} {problem}")
        self.field = field


class ProtocolError(PaiError):
    """A document that the server would refuse; ``problems`` lists each path and the rule it breaks."""

    exit_code = exits.BAD_INPUT

    def __init__(self, message: str, problems: tuple[object, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class Unreachable(PaiError):
    """The cluster or storage does not answer; ``is_outage`` if it may answer later."""

    exit_code = exits.UNREACHABLE

    def __init__(self, message: str = "", is_outage: bool = False) -> None:
        super().__init__(message)
        self.is_outage = is_outage


class Lost(Unreachable):
    """A connection broke; a new one may work."""


class ApiError(PaiError):
    """The server refused a request, with the HTTP ``status`` and OpenPAI's ``code``."""

    exit_code = exits.REFUSED
    status = 0

    def __init__(self, message: str, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status = status or self.status
        self.code = code


class Denied(ApiError):
    """The login was refused, or the user may not do this (401, 403)."""


class NotFound(ApiError):
    """The server does not know the job, cluster or other thing that was named (404)."""

    status = 404


class NoSuchPath(NotFound):
    """A file or folder does not exist, on this machine or on a storage."""

    exit_code = exits.BAD_PATH


class Unsupported(NotFound):
    """The cluster is of a kind or version that cannot do this; it was not even asked."""

    exit_code = exits.BAD_INPUT


class Conflict(ApiError):
    """It exists already, such as a job of this name (409)."""

    status = 409


class TooManyRequests(ApiError):
    """The server asks to retry after ``retry_after`` seconds, which is longer than a call waits."""

    def __init__(self, message: str, status: int = 429, code: str = "", retry_after: float = 0.0) -> None:
        super().__init__(message, status, code)
        self.retry_after = retry_after


class PathError(PaiError, OSError):
    """A path cannot be used: it exists already, is no folder, or its name is not allowed."""

    exit_code = exits.BAD_PATH


class TimedOut(PaiError):
    """The time limit of a wait or a request has passed."""

    exit_code = exits.TIMED_OUT


class JobFailed(PaiError):
    """The job has ended without success; the command exits with the job's exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
