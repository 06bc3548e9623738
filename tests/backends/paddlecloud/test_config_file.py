"""~/.paddle/config: both forms are read, and mistakes in it are lines, never failures."""

import pytest

from openpai_tasks.backends.paddlecloud import config_file as paddle_config
from openpai_tasks.backends.paddlecloud.config_file import Datacenter

LIST = """
datacenters:
- name: dc1
  username: ann@example.com
  password: 0123
  endpoint: http://dc1.example.com/
- name: dc2
  username: ann
  password: s3cret
  endpoint: https://dc2.example.com/cloud//
  usercert: /home/ann/ann.pem
current-datacenter: dc2
"""
MAPPING = """
dc1:
  username: ann
  password: s3cret
  endpoint: dc1.example.com
here:
  username: ann
  password: 1e5
  endpoint: 127.0.0.1:8080/paddlecloud
current-datacenter: here
"""


@pytest.fixture(autouse=True)
def write(tmp_path, monkeypatch):
    """Write the file in a home folder of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))

    def put(content: str | bytes) -> None:
        paddle_config.path().parent.mkdir(exist_ok=True)
        paddle_config.path().write_bytes(content.encode() if isinstance(content, str) else content)

    return put


def test_without_a_file_there_are_no_datacenters():
    assert paddle_config.load() == paddle_config.PaddleConfig()


def test_list_of_datacenters_is_read_with_passwords_as_written(write):
    write(LIST)
    found = paddle_config.load()
    assert found.datacenters == (
        Datacenter("dc1", "http://dc1.example.com", "ann@example.com", "0123"),
        Datacenter("dc2", "https://dc2.example.com/cloud", "ann", "s3cret", "/home/ann/ann.pem"),
    )
    assert (found.current, found.problems) == ("dc2", ())
    assert "s3cret" not in repr(found)


def test_mapping_of_datacenters_is_read_and_bare_hosts_get_a_scheme(write):
    write(MAPPING)
    found = paddle_config.load()
    assert [one.endpoint for one in found.datacenters] == [
        "https://dc1.example.com",
        "http://127.0.0.1:8080/paddlecloud",
    ]
    assert (found.datacenters[1].password, found.current, found.problems) == ("1e5", "here", ())


def test_certificates_are_read_in_both_forms_and_mean_tls(write, tmp_path):
    files = "usercert: /keys/user.pem\n  userkey: user-key.pem"
    for text in (f"dc1:\n  {files}\n", f"datacenters:\n- name: dc1\n  {files}\n"):
        write(f"{text}  username: ann\n  endpoint: 127.0.0.1:8443\n")
        (one,) = paddle_config.foreign_clusters([]).clusters
        assert (one.cluster.uri, one.password) == ("https://127.0.0.1:8443", "")
        assert one.cluster.certificate == ("/keys/user.pem", str(tmp_path / ".paddle" / "user-key.pem"))


def test_what_is_written_can_be_read_back(write):
    given = (Datacenter("local", "http://127.0.0.1:1/paddlecloud", "ann", "0x1: '\"#\u00fc"),)
    write(paddle_config.write(given, "local"))
    assert paddle_config.load() == paddle_config.PaddleConfig(given, "local")


@pytest.mark.parametrize(
    "content, problem",
    [
        ("datacenters: [", "is not valid YAML (line 1"),
        (b"\xff\xfe", "is not valid YAML"),
        ("- s3cret", "must have the key"),
        ("s3cret", "must have the key"),
        ("datacenters: s3cret", "must be a mapping"),
        ("dc1: s3cret", "must be a mapping"),
        ("datacenters: [s3cret]", "entry 1: it must be a mapping"),
        ("datacenters: [{name: dc1, username: ann}]", "has no endpoint"),
        ("datacenters: [{name: dc1, endpoint: 'http://x'}]", "has no username"),
        ("datacenters: [{name: ../x, username: ann, endpoint: 'http://x'}]", "its name must not"),
        ("datacenters: [{name: [dc1], username: ann, endpoint: 'http://x'}]", "its name must not"),
        ("dc1: {username: a/b, endpoint: 'http://x'}", "its username is not valid"),
        ("dc1: {username: .., endpoint: 'http://x'}", "its username is not valid"),
        ("dc1: {username: ann, endpoint: 'ftp://x'}", "its endpoint is not valid"),
        ("dc1: {username: ann, endpoint: 'http://ann:s3cret@x'}", "must not contain a user or password"),
        ("dc1: {username: ann, endpoint: '[::1'}", "its endpoint is not valid"),
        ("dc1: {username: ann, endpoint: x}\ncurrent-datacenter: dc9", "'dc9' is not one of"),
        ("[" * 5000, "is not valid YAML"),
        ("#" * ((1 << 20) + 1), "is larger than 1 MB"),
    ],
)
def test_each_mistake_is_one_line_without_secrets(write, content, problem):
    write(content)
    (line,) = paddle_config.load().problems
    assert problem in line and str(paddle_config.path()) in line
    assert "\n" not in line and "s3cret" not in line


def test_valid_datacenters_are_used_beside_wrong_ones(write):
    write(
        LIST.replace("username: ann@example.com", "username: ''").replace(
            "dc2\n  username", "dc2\n  username"
        )
    )
    found = paddle_config.load()
    assert [one.name for one in found.datacenters] == ["dc2"] and len(found.problems) == 1


def test_a_repeated_name_counts_once(write):
    write("datacenters:\n" + "- {name: dc1, username: ann, endpoint: 'http://x'}\n" * 2)
    found = paddle_config.load()
    assert len(found.datacenters) == 1 and "it is there twice" in found.problems[0]


def test_a_folder_or_an_unreadable_file_is_a_problem(write):
    paddle_config.path().mkdir(parents=True)
    assert "cannot be read" in paddle_config.load().problems[0]


def test_alias_of_another_cluster_is_not_taken(write):
    write(MAPPING.replace("here", "local"))
    clusters = [one.cluster for one in paddle_config.foreign_clusters(["dc1"]).clusters]
    assert [cluster.alias for cluster in clusters] == ["dc1-paddle", "local-paddle"]
    assert [cluster.options["datacenter"] for cluster in clusters] == ["dc1", "local"]
