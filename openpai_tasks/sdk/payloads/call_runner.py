"""Run calls in a job. This file is sent with the job, and needs only the standard library.

``calls.bin`` beside this file has the pickled calls, and ``calls.txt`` the number, offset and size of each. A
call's result is written to ``$PAI_OUTPUT_DIR/.pai/results/<number>.pkl``, complete or not at all, and sealed
with the key of the executor, so that nobody else can write a result that its user unpickles. Imports are few,
as they take most of the time of a small call.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import sys
import time

TYPE_CHECKING = False  # importing it from typing takes longer than most of this
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

FOLDER = ".pai-calls"
LIBRARY, CALLS, INDEX = "lib", "calls.bin", "calls.txt"
RESULTS = ".pai/results"
ERROR = "error.txt"
"""The file with the reason why a job cannot run its calls."""
KEY = "PAI_CALLS_KEY"
"""The secret variable with the executor's key, in hexadecimal digits."""
VALUE, RAISED, DESCRIBED = "value", "raised", "described"
"""Kinds of results: a value, an exception, and an exception that cannot be pickled."""
SEAL_SIZE = 32
VERSION_FILE = "version"


def result_name(number: int) -> str:
    return f"{number}.pkl"


def seal(key: bytes, number: int, body: bytes) -> bytes:
    """Return the keyed digest of a call's result."""
    return hashlib.blake2b(b"%d\n%b" % (number, body), key=key, digest_size=SEAL_SIZE).digest()


# In the job


def main(numbers: str) -> None:
    """Run the calls with these numbers, separated by commas, except those that have a result."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [os.getcwd(), *(path for path in sys.path if path not in ("", here))]
    key = bytes.fromhex(os.environ.pop(KEY))  # programs that a call starts need not know it
    folder = os.path.join(os.environ["PAI_OUTPUT_DIR"], *RESULTS.split("/"))
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(here, INDEX), encoding="ascii") as file:
        index = {number: (int(offset), int(size)) for number, offset, size in map(str.split, file)}
    for text in numbers.split(","):
        path = os.path.join(folder, result_name(int(text)))
        if os.path.exists(path):  # by an earlier attempt of the job
            continue
        offset, size = index[text]
        with open(os.path.join(here, CALLS), "rb") as file:
            file.seek(offset)
            call = file.read(size)
        body = run(call)
        sys.stdout.flush()
        sys.stderr.flush()
        write(path, seal(key, int(text), body) + body)


def run(call: bytes) -> bytes:
    """Run a call and return its pickled result."""
    try:
        if b"cloudpickle" in call:
            load_cloudpickle()
        function, args, kwargs = pickle.loads(call)  # noqa: S301 - the archive was checked against its hash
    except BaseException as err:
        return pack_error(explain(err), err.__traceback__)
    del call
    try:
        value = function(*args, **kwargs)
    except BaseException as err:  # as other executors do: sys.exit() in a call ends the call
        return pack_error(err, err.__traceback__ and err.__traceback__.tb_next)
    try:
        return dumps((VALUE, value))
    except Exception as err:
        name = getattr(function, "__qualname__", repr(function))
        text = f"the result of {name}, of type {type(value).__qualname__}, cannot be pickled: {err}"
        return pack_error(pickle.PicklingError(text), err.__traceback__)


def explain(err: BaseException) -> BaseException:
    """Say what to do if a module is missing in the job."""
    if isinstance(err, ModuleNotFoundError) and err.name:
        top = err.name.partition(".")[0]
        hint = f"send it (sources=[{top + '.py'!r}]) or install it (pip_installs=[{top!r}])"
        return ModuleNotFoundError(f"the job has no module {err.name!r}: {hint}", name=err.name)
    return err


def dumps(value: Any) -> bytes:
    """Pickle plainly, else with cloudpickle, which can do more and takes longer to load."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception:
        return load_cloudpickle().dumps(value, pickle.HIGHEST_PROTOCOL)  # type: ignore[no-any-return]


def pack_error(err: BaseException, trace: TracebackType | None) -> bytes:
    """Print an exception, and pickle it with its traceback; describe one that cannot be pickled."""
    import traceback

    text = "".join(traceback.format_exception(type(err), err, trace))
    sys.stderr.write(text)
    try:
        body = dumps((RAISED, err, text))
        pickle.loads(body)  # noqa: S301 - some exceptions can be pickled but not unpickled
        return body
    except Exception:
        return pickle.dumps((DESCRIBED, type(err).__qualname__, str(err), text), pickle.HIGHEST_PROTOCOL)


def load_cloudpickle() -> Any:
    """Import cloudpickle: the image's if it has the caller's version, else the one that was sent along."""
    library = os.path.join(os.path.dirname(os.path.abspath(__file__)), LIBRARY)
    with open(os.path.join(library, VERSION_FILE), encoding="ascii") as file:
        wanted = file.read()
    try:
        import cloudpickle

        if cloudpickle.__version__ == wanted:
            return cloudpickle
    except ImportError:
        pass
    for name in [name for name in sys.modules if name.partition(".")[0] == "cloudpickle"]:
        del sys.modules[name]
    sys.path.insert(0, library)
    import cloudpickle

    sys.path.remove(library)
    return cloudpickle


def write(path: str, content: bytes) -> None:
    """Write a file, complete or not at all."""
    part = os.path.join(os.path.dirname(path), f".pai-part-{int(time.time()):08x}{os.urandom(4).hex()}")
    with open(part, "wb") as file:
        file.write(content)
    os.replace(part, path)
