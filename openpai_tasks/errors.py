"""Every error raised on purpose, with the exit code it ends a command with.

PaiError                 base, never raised itself
├── ConfigError          settings wrong or missing                 120
├── ProtocolError        a job document that isn't one             120
├── Unreachable          no answer from the cluster                121
│   └── Lost             a connection that was there is no more
├── ApiError             an answer that says no (.status .code)    122
│   ├── Denied           401 and 403
│   ├── NotFound         404
│   │   └── Unsupported  what this cluster cannot do               120
│   ├── Conflict         409
│   └── TooManyRequests  429 (.retry_after)
├── PathError            a path that cannot be used (also OSError) 123
├── TimedOut             a wait that ran out                       124
└── JobFailed            the job ended, and not well               the job's own exit code
"""

from __future__ import annotations

from openpai_tasks import exits
from openpai_tasks.plain_text import one_line


class PaiError(Exception):
    """What went wrong, with which value, and what to do about it: one line."""

    exit_code = exits.FAILED
    is_given_up = False  # other tries were made already, as many as help
    is_outage = False  # nobody answers now, but somebody may soon

    def __str__(self) -> str:
        return one_line(super().__str__())


class ConfigError(PaiError):
    exit_code = exits.BAD_INPUT


class ProtocolError(PaiError):
    """A document the server would refuse; ``problems`` names each place and the rule it breaks."""

    exit_code = exits.BAD_INPUT

    def __init__(self, message: str, problems: tuple[object, ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class Unreachable(PaiError):
    exit_code = exits.UNREACHABLE

    def __init__(self, message: str = "", is_outage: bool = False) -> None:
        super().__init__(message)
        self.is_outage = is_outage


class Lost(Unreachable):
    """A connection that was there is no more; another one may be had."""


class ApiError(PaiError):
    exit_code = exits.REFUSED

    def __init__(self, message: str, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class Denied(ApiError):
    pass


class NotFound(ApiError):
    pass


class Unsupported(NotFound):
    """The cluster is of a kind or version that cannot do this; it was not even asked."""

    exit_code = exits.BAD_INPUT

    def __init__(self, message: str) -> None:
        super().__init__(message, 404)


class Conflict(ApiError):
    pass


class TooManyRequests(ApiError):
    """The server wants to be left alone for ``retry_after`` seconds, longer than a call waits."""

    def __init__(self, message: str, status: int = 429, code: str = "", retry_after: float = 0.0) -> None:
        super().__init__(message, status, code)
        self.retry_after = retry_after


class PathError(PaiError, OSError):
    exit_code = exits.BAD_PATH


class TimedOut(PaiError):
    exit_code = exits.TIMED_OUT


class JobFailed(PaiError):
    """The job is over and did not succeed; the command ends with the job's own exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code
