"""Results of calls: read from a job's output folder, and given to their futures.

Results are pickles, which can run code when they are read. A result is unpickled only if it has the seal of
the executor's key, which the job got as a secret: a file that somebody else has put there is refused.
"""

from __future__ import annotations

import hmac
import pickle
from typing import Any

from openpai_tasks.api.futures.pai_future import PaiFuture
from openpai_tasks.errors import NotFound, PaiError
from openpai_tasks.sdk.files.job_folders import Home
from openpai_tasks.sdk.payloads import call_runner as runner
from openpai_tasks.storage.store import join
from openpai_tasks.text.plain import one_line

LONGEST_ERROR = 4000  # bytes of a job's explanation that are read


class RemoteTraceback(Exception):
    """The traceback of an exception in a job, as the cause of the exception here."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class CallFailed(PaiError):
    """A call raised an exception that cannot be pickled; the message has its type and text."""


class ForeignResult(PaiError):
    """A result that is incomplete, or was not written by the executor's job."""


class CallResults:
    """The results of an executor's calls on the storage."""

    def __init__(self, home: Home, key: bytes) -> None:
        self._home, self._key = home, key

    def read(self, job: str, number: int) -> bytes | None:
        """Return a call's pickled result, or None if it is not written yet."""
        try:
            content = b"".join(self._home.store.read(join(self._folder(job), runner.result_name(number))))
        except NotFound:
            return None
        seal, body = content[: runner.SEAL_SIZE], content[runner.SEAL_SIZE :]
        if not hmac.compare_digest(seal, runner.seal(self._key, number, body)):
            raise ForeignResult(f"the result of call {number} is damaged, or was not written by job {job!r}")
        return body

    def present(self, job: str) -> set[str]:
        """Return the names of the result files that a job has written so far."""
        try:
            return {entry.name for entry in self._home.store.list(self._folder(job))}
        except NotFound:
            return set()

    def error(self, job: str) -> str:
        """Return the job's own explanation of why it could not run its calls; empty without one."""
        try:
            path = join(self._folder(job), runner.ERROR)
            pieces = self._home.store.read(path, 0, LONGEST_ERROR)
            return one_line(b"".join(pieces).decode("utf-8", "replace").strip())
        except PaiError:
            return ""

    def _folder(self, job: str) -> str:
        return join(self._home.layout.output(job), runner.RESULTS)


def deliver(future: PaiFuture[Any], body: bytes) -> None:
    """Unpickle a sealed result, and set it in its future."""
    try:
        kind, *parts = pickle.loads(body)  # noqa: S301 - it has the seal of our own job
    except Exception as err:
        reason = f"{type(err).__qualname__}: {err}"
        failure = CallFailed(f"cannot unpickle the result of call {future.number}: {reason}")
        failure.__cause__ = err
        future.set_exception(failure)
        return
    if kind == runner.VALUE:
        future.set_result(parts[0])
    elif kind == runner.RAISED:
        future.set_exception(_with_traceback(parts[0], parts[1]))
    else:
        name, message, text = parts
        future.set_exception(_with_traceback(CallFailed(f"{name}: {message}"), text))


def _with_traceback(err: BaseException, text: str) -> BaseException:
    err.__cause__ = RemoteTraceback(text)
    return err
