"""Bad input ends in one clear line and one of our exit codes, and nothing is lost."""

import gzip
import socket

import pytest

OURS = range(120, 126)


def assert_one_clear_line(ran, *words):
    lines = [line for line in ran.err.splitlines() if line.strip()]
    assert ran.code in OURS, ran
    assert len(lines) == 1 and lines[0].startswith("error: "), ran.err
    assert "Traceback" not in ran.err
    for word in words:
        assert word in ran.err, ran.err
    return ran


@pytest.fixture(scope="module")
def dead_port():
    """A port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


BY_NAME = ("status", "config", "logs", "stop", "wait", "connect")
ALIAS_TAKERS = ("job.sub true", "job.list", *(f"job.{name} x" for name in BY_NAME))
REFUSED = {
    # exit code: command, what its error must name
    120: [
        *(([*line.split(), "-a", "prod"], "'prod'", "local") for line in ALIAS_TAKERS),
        *(([f"cluster.{name}", "prod"], "'prod'") for name in ("select", "delete", "info", "credentials")),
        (["job.sub", "true", "--gpu", "two"], "--gpu", "'two'"),
        (["job.sub", "true", "--cpu", "two"], "--cpu", "'two'"),
        (["job.sub", "true", "--memoryMB", "two"], "--memoryMB", "'two'"),
        (["job.sub", "true", "--gpu", "-1"], "gpu"),
        (["job.sub", "true", "-j", "x" * 256], "name", "255"),
        (["job.sub", "true", "-j", "a/b"], "name"),
        (["job.sub", ""], "command"),
        (["job.sub", "   "], "command"),
        (["job.sub"], "command"),
        (["job.sub", "echo one", "--", "echo", "two"], "'echo one'", "'echo two'"),
        (["job.list", "-o", "xml"], "'xml'", "json"),
        (["job.wait", "waited-for", "--timeout", "nan"], "timeout"),
        (["job.wait", "waited-for", "--timeout", "-3"], "timeout"),
        (["config.set", "image="], "image", "config.unset"),
        (["storage.cp", "a", "b", "--workers=0"], "--workers", "0"),
        (["storage.sync", "a", "b", "--workers=-3"], "--workers", "-3"),
        (["storage.unpack", "a", "b", "--workers=0"], "--workers", "0"),
        (["storage.pack", ".", "b", "--workers=-1"], "--workers", "-1"),
        (["storage.pack", ".", "b", "--shard-size=0"], "--shard-size", "0"),
        (["storage.tree", "--depth=-1"], "--depth", "-1"),
        (["storage.head", "a", "--lines=-1"], "--lines", "-1"),
        (["storage.find", "--min-size=1X"], "--min-size", "1X"),
        (["storage.find", "--min-size=-1"], "--min-size", "-1"),
    ],
    122: [([f"job.{name}", "no-such-job"], "'no-such-job'") for name in BY_NAME],
    123: [
        (["job.validate", "nope.yaml"], "'nope.yaml'"),
        (["job.submit", "nope.yaml"], "'nope.yaml'"),
        (["job.sub", "true", "--sources", "nope.py"], "'nope.py'"),
        (["job.sub", "true", "--sources", ""], "source"),
    ],
}


def test_bad_input_is_refused_in_one_clear_line(cluster):
    cluster.ok("job.sub", "true", "-j", "waited-for")
    for code, rows in REFUSED.items():
        for command, *words in rows:
            ran = assert_one_clear_line(cluster.inv(*command), *words)
            assert ran.code == code, (command, ran)


def test_dead_port_is_reported_as_unreachable(cluster, dead_port):
    uri = f"http://127.0.0.1:{dead_port}"
    ran = cluster.inv(
        "cluster.add", "-a", "dead", "--pai-uri", uri, "--user", "ann", OPENPAI_PASSWORD="secret-pw"
    )
    assert_one_clear_line(ran, uri)
    assert ran.code == 121 and "secret-pw" not in ran.err
    assert "dead" not in cluster.ok("cluster.list").out


def test_a_wrong_password_is_refused_and_not_shown(cluster):
    uri = cluster.ok("cluster.status", "-o", "json").json()["uri"]
    user = cluster.ok("cluster.credentials", "local", "-o", "json").json()["user"]
    ran = cluster.inv(
        "cluster.add", "-a", "wrong", "--pai-uri", uri, "--user", user, OPENPAI_PASSWORD="not-the-password"
    )
    assert_one_clear_line(ran)
    assert "not-the-password" not in ran.err + ran.out


def test_error_about_malformed_yaml_names_the_line(cluster):
    (cluster.project / "broken.yaml").write_text("name: [1,\nfoo: }\n")
    assert_one_clear_line(cluster.inv("job.submit", "broken.yaml"), "line")


def test_taken_job_name_is_refused_before_anything_is_copied(cluster):
    (cluster.project / "one.py").write_text("1")
    cluster.ok("job.sub", "cat one.py", "-j", "taken", "--sources", "one.py")
    (cluster.project / "one.py").write_text("2")
    ran = cluster.inv("job.sub", "cat one.py", "-j", "taken", "--sources", "one.py")
    assert ran.code == 122
    assert "'taken'" in ran.err and "Traceback" not in ran.err
    [folder] = (cluster.home / "local" / "storage").rglob("jobs/taken/source")
    [reference] = folder.iterdir()
    assert len(list((folder.parents[2] / "sources").iterdir())) == 1  # the new one was not sent
    assert (folder.parents[2] / "sources" / f"{reference.stem}.tar.gz").exists()


def test_an_unknown_task_gets_a_suggestion(cluster):
    ran = cluster.inv("job.subb", "true")
    assert ran.code != 0 and "job.sub" in ran.err and "Traceback" not in ran.err


def test_unknown_setting_is_refused_and_the_known_ones_are_named(cluster):
    assert_one_clear_line(cluster.inv("config.set", "imag=x"), "'imag'", "image")
    assert not (cluster.project / ".openpai" / "defaults.yaml").exists()


def test_unknown_virtual_cluster_is_refused_and_the_sources_are_removed(cluster):
    (cluster.project / "one.py").write_text("no-vc")
    ran = cluster.inv("job.sub", "true", "-j", "no-vc", "--virtual-cluster", "nope", "--sources", "one.py")
    assert ran.code == 122
    last = ran.err.splitlines()[-1]
    assert last == "error: no virtual cluster named 'nope' on cluster 'local' (known: default)"
    storage = cluster.home / "local" / "storage"
    assert not list(storage.rglob("jobs/no-vc"))
    assert not [path for path in storage.rglob("*.tar.gz") if b"no-vc" in gzip.decompress(path.read_bytes())]


@pytest.mark.parametrize(
    "text, words",
    [
        ("openpai: [", ["invoke.yaml"]),
        ("openpai: just text", ["invoke.yaml"]),
        ("openpai:\n  gpu: many", ["gpu", "many"]),
    ],
)
def test_broken_invoke_yaml_is_reported_without_traceback(cluster, text, words):
    path = cluster.project / "invoke.yaml"
    path.write_text(text)
    try:
        ran = cluster.inv("job.sub", "true")
    finally:
        path.unlink()
    assert ran.code != 0 and "Traceback" not in ran.err
    for word in words:
        assert word in ran.err


def test_unknown_setting_in_invoke_yaml_gives_a_warning(cluster):
    path = cluster.project / "invoke.yaml"
    path.write_text("openpai:\n  imagee: x")
    try:
        ran = cluster.ok("job.sub", "true")
    finally:
        path.unlink()
    assert "'imagee', did you mean image?" in ran.err


def test_an_unknown_output_format_is_refused_before_anything_is_done(cluster):
    ran = cluster.inv("job.sub", "true", "-j", "never-sent", "-o", "xml")
    assert_one_clear_line(ran, "'xml'")
    assert "never-sent" not in cluster.ok("job.list").out


def test_a_token_is_not_shown_even_if_it_cannot_be_sent(cluster):
    uri = cluster.ok("cluster.status", "-o", "json").json()["uri"]
    for token in ("SECRETTOK\u20ac", "SECRET TOK", "SECRET\x01TOK"):
        ran = cluster.inv("cluster.add", "c1", uri, "--user", "root", OPENPAI_TOKEN=token)
        assert ran.code in OURS and "Traceback" not in ran.err
        assert "SECRET" not in ran.err


@pytest.mark.parametrize(
    "address", ["http://[::1", f"http://{'a' * 300}.com", "http://\u00e9..com", "http://x:99999", "ftp://x"]
)
def test_invalid_address_is_reported_in_one_line(cluster, address):
    ran = cluster.inv("cluster.add", "ux", address, "--user", "ann", OPENPAI_PASSWORD="secret-pw")
    assert ran.code in OURS and "Traceback" not in ran.err and len(ran.err.splitlines()) == 1


def test_unwritable_output_is_reported_without_traceback(cluster):
    ran = cluster.run("sh", "-c", "pai job.list > /dev/full")
    assert ran.code == 123 and "Traceback" not in ran.err and "cannot write the output" in ran.err


def test_closed_output_gives_no_traceback(cluster):
    assert "Traceback" not in cluster.run("sh", "-c", "pai job.list >&-").err


@pytest.mark.parametrize("kind", ["json", "yaml"])
def test_too_deeply_nested_document_gives_no_traceback(cluster, kind):
    (cluster.project / f"deep.{kind}").write_text("[" * 5000 + "]" * 5000)
    ran = cluster.inv("job.submit", f"deep.{kind}")
    assert ran.code in OURS and "Traceback" not in ran.err


def test_home_that_is_not_a_folder_gives_no_traceback(cluster):
    ran = cluster.inv("job.list", OPENPAI_HOME="/dev/null")
    assert ran.code in OURS and "Traceback" not in ran.err


@pytest.mark.parametrize("words", [["job.sub", "cat b\udcff"], ["job.sub", "true", "--env", "A=\udcff"]])
def test_bytes_that_are_not_text_are_refused_as_a_document_cannot_have_them(cluster, words):
    ran = cluster.pai(*words, "--job-name", "not-text")
    assert (ran.code, ran.out) == (120, "") and ran.err.endswith("must be UTF-8 text\n"), ran
    assert cluster.pai("job.status", "not-text").code == 122
