"""The policy of a job in its document."""

from __future__ import annotations

import pytest

from openpai_tasks import protocol
from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol import JobRequest
from openpai_tasks.protocol.document import folding
from openpai_tasks.protocol.document.policy import (
    Dependency,
    JobPolicy,
    priority_class,
    priority_word,
    with_priority,
)
from openpai_tasks.protocol.document.reading import read_request

FULL = JobPolicy((Dependency("prep"), Dependency("bob~eval", "failed")), 3600, 600, 3, 30)


@pytest.mark.parametrize("policy", [JobPolicy(), FULL, JobPolicy(keep_failed=60)])
def test_a_document_keeps_the_policy_of_its_request(policy):
    request = JobRequest(command="true", name="a", image="i", policy=policy)
    document = protocol.build_document(request)
    assert ("extras" in document) == (policy != JobPolicy())
    assert protocol.validate(protocol.dump(document)).policy == policy
    assert read_request(document)[0].policy == policy


def test_requeues_and_grace_period_survive_folding():
    request = JobRequest(command="true", name="a", image="i", max_seconds=90, policy=JobPolicy(requeues=2))
    document = protocol.build_document(request)
    folded = folding.fold(document)
    [command] = folded["taskRoles"]["main"]["commands"]
    assert command.startswith("# openpai-tasks: time limit of 90 s, requeued up to 2 times, 9 s grace\n")
    assert folding.unfold(folded, document) == document
    assert read_request(document)[0].policy == request.policy


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (1, "extras.jobPolicy"),
        ({"idle": 1}, "idle"),
        ({"requeues": "often"}, "extras.jobPolicy.requeues"),
        ({"keepFailedSeconds": -1}, "extras.jobPolicy.keepFailedSeconds"),
        ({"after": "prep"}, "extras.jobPolicy.after"),
        ({"after": [{"job": "prep", "when": "soon"}]}, "extras.jobPolicy.after[0].when"),
        ({"after": [{"when": "failed"}]}, "extras.jobPolicy.after[0]"),
    ],
)
def test_a_wrong_policy_is_refused(given, path):
    document = protocol.build_document(JobRequest(command="true", name="a", image="i"))
    document["extras"] = {"jobPolicy": given}
    with pytest.raises(ProtocolError) as caught:
        protocol.validate(protocol.dump(document))
    assert path in str(caught.value)
    assert read_request(document)[0].policy == JobPolicy()


def test_a_document_keeps_the_priority_of_its_request():
    request = JobRequest(command="true", name="a", image="i", priority=priority_class("high"))
    document = protocol.build_document(request)
    assert document["extras"] == {"hivedScheduler": {"jobPriorityClass": "prod"}}
    assert protocol.validate(protocol.dump(document)).priority == "prod"
    known, left = read_request(document)
    assert (known.priority, known.extras, left) == ("prod", {}, [])
    skus = {"hivedScheduler": {"taskRoles": {"main": {"skuNumber": 1}}}}
    known, left = read_request({**document, "extras": with_priority(skus, "oppo")})
    assert (priority_word(known.priority), known.extras) == ("low", skus)


@pytest.mark.parametrize("word", ["", "highest", "HIGH", "0"])
def test_an_unknown_priority_is_refused(word):
    with pytest.raises(ValueError, match="needs low, normal or high"):
        priority_class(word)
