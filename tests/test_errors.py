"""Errors reach other processes, as those of process pools and executors do."""

import pickle

from openpai_tasks import errors
from openpai_tasks.errors import InvalidOption, JobFailed, PaiError, ProtocolError, TooManyRequests

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PaiError)]


MORE = {JobFailed: 7, InvalidOption: "must be at least 0"}


def test_every_error_can_be_pickled():
    assert len(KINDS) > 10
    for kind in KINDS:
        err = kind("what", MORE[kind]) if kind in MORE else kind("what")
        again = pickle.loads(pickle.dumps(err))
        assert type(again) is kind and str(again) == str(err) and "what" in str(err)
        assert (again.exit_code, vars(again)) == (err.exit_code, vars(err))


def test_a_pickled_error_keeps_its_details():
    assert pickle.loads(pickle.dumps(JobFailed("x", 7))).exit_code == 7
    assert pickle.loads(pickle.dumps(TooManyRequests("x", retry_after=9.0))).retry_after == 9.0
    assert pickle.loads(pickle.dumps(ProtocolError("x", ("one",)))).problems == ("one",)
    assert pickle.loads(pickle.dumps(InvalidOption("gpu", "is wrong"))).field == "gpu"
