import pytest

from openpai_tasks.errors import ProtocolError
from openpai_tasks.protocol import JobRequest, RoleRequest, build_document
from openpai_tasks.protocol.document.ports import listening_ports


def test_a_number_from_1024_up_is_the_port_that_the_program_listens_on():
    roles = (
        RoleRequest("web_ui", "serve", image="i", ports={"web": 8080, "rpc": 100}),
        RoleRequest("worker", "run", image="i", ports={"data": 1}),
    )
    document = build_document(JobRequest(name="n", roles=roles, extras={"mine": 1}))
    counts = {name: role["resourcePerInstance"]["ports"] for name, role in document["taskRoles"].items()}
    assert counts == {"web_ui": {"web": 1, "rpc": 100}, "worker": {"data": 1}}
    assert document["extras"] == {"openpaiPorts": {"web_ui": {"web": 8080}}, "mine": 1}
    assert listening_ports(document, "webui") == {"web": 8080}  # as servers name the role
    assert listening_ports(document, "worker") == {}


@pytest.mark.parametrize("number", [0, -1, 101, 1023, 65536])
def test_other_numbers_are_refused(number):
    with pytest.raises(ProtocolError, match=f"ports.web .*, got {number}"):
        build_document(JobRequest("c", "n", "i", ports={"web": number}))


@pytest.mark.parametrize(
    "extras", [None, [], {"openpaiPorts": 8}, {"openpaiPorts": {"main": {"web": "x", "low": 80, "far": 1e9}}}]
)
def test_a_strange_document_has_no_such_ports(extras):
    assert listening_ports({"extras": extras}, "main") == {}
