"""`-a any`: submit to whichever cluster can start the job, among real embedded clusters."""

from __future__ import annotations

import pytest

from tests.conftest import make_shell
from tests.server.workshop import until


@pytest.fixture(scope="module")
def clusters(tmp_path_factory, cluster):
    """Three clusters: the embedded one, another at its address, and one that does not answer."""
    lab = make_shell(tmp_path_factory.mktemp("lab"))
    lab.ok("cluster.start")
    known = lab.ok("cluster.credentials", "local", "-o", "json").json()
    words = ("cluster.add", "lab", known["uri"], "--user", known["user"], "--password-file", "-")
    cluster.ok(*words, input=known["password"])
    cluster.ok("cluster.add", "gone", "http://127.0.0.1:9", "--user", "ann", "--no-check")
    cluster.ok("cluster.start")
    yield cluster
    lab.ok("cluster.stop")


def fits(shell, *flags, **variables):
    rows = shell.ok("cluster.resources", "--fits", "-o", "json", *flags, **variables).json()
    return {row["cluster"]: row["fits"] for row in rows}


def test_a_job_goes_where_it_can_start_now_else_to_the_shortest_queue(clusters):
    [row] = clusters.ok("cluster.resources", "local", "-o", "json").json()
    cpus = str(int(row["vcores_total"]))
    assert fits(clusters, "--cpu", cpus) == {"lab": "fits now", "gone": "no answer", "local": "fits now"}
    ran = clusters.ok("job.sub", "sleep 600", "-j", "hog", "--cpu", cpus, "-a", "any")
    assert "not cluster gone: no answer from" in ran.err
    assert f"cluster lab can start it now: {cpus} of {cpus} CPUs are free in default" in ran.err
    assert "`inv job.list -a lab` shows its jobs" in ran.err
    until(lambda: fits(clusters, "--cpu", "1")["lab"] == "would wait")
    ran = clusters.ok("job.sub", "sleep 600", "-j", "hog", "--cpu", cpus, "-a", "any")
    assert "cluster local can start it now" in ran.err
    until(lambda: fits(clusters, "--cpu", "1")["local"] == "would wait")
    clusters.ok("job.sub", "true", "-j", "queued", "--cpu", cpus, "-a", "lab")
    until(lambda: clusters.ok("job.status", "queued", "-a", "lab", "-o", "json").json()["state"] == "WAITING")
    ran = clusters.ok("container.start", "-a", "any", "--preview")
    assert "cluster local has the shortest queue of those that can run it: it asks for 1 CPU" in ran.err
    clusters.ok("job.stop", "-y", "hog")
    clusters.ok("job.stop", "-y", "hog", "queued", "-a", "lab")
    clusters.inv("job.wait", "hog")  # the next tests need free clusters
    clusters.inv("job.wait", "hog", "queued", "-a", "lab")


def test_a_cluster_that_cannot_run_a_job_is_never_chosen(clusters):
    assert fits(clusters, "-i", "ubuntu:24.04")["local"] == "cannot"
    assert fits(clusters, "--virtual-cluster", "secret")["lab"] == "cannot"
    ran = clusters.inv("job.sub", "true", "--gpu", "512", "-a", "any")
    assert ran.code == 120 and ran.err.startswith("error: none of your clusters can run it (lab: ")
    assert "it asks for 512 GPUs, and virtual cluster default has " in ran.err and ran.err.count("\n") == 1
    assert "need --fits" in clusters.inv("cluster.resources", "--gpu", "1").err


def test_a_project_can_only_narrow_the_clusters_to_choose_from(clusters):
    (clusters.project / "invoke.yaml").write_text("openpai: {any-clusters: [local, gone]}\n")
    assert [*fits(clusters)] == ["gone", "local"]
    assert [*fits(clusters, INVOKE_OPENPAI_ANY_CLUSTERS="lab,local")] == ["lab", "local"]
    clusters.ok("config.set", "-g", "any-clusters=local,lab")
    assert [*fits(clusters)] == ["local"]
    clusters.ok("config.unset", "-g", "any-clusters")
    (clusters.project / "invoke.yaml").unlink()


def test_any_is_not_a_cluster(clusters):
    error = "error: 'any' chooses a cluster only for a new job (job.sub, job.submit, "
    for words in (["job.list", "-a", "any"], ["cluster.select", "any"], ["storage.list", "any"]):
        ran = clusters.inv(*words)
        assert ran.code == 120 and ran.err.startswith(error), ran
    ran = clusters.inv("cluster.add", "any", "http://127.0.0.1:9", "--no-check")
    assert "the alias 'any' stands for whichever cluster can start a job" in ran.err


def test_job_files_and_programs_choose_too(clusters):
    (clusters.project / "file.yaml").write_text(
        clusters.ok("job.sub", "true", "-j", "from-file", "--preview", "-o", "yaml").out
    )
    assert "cluster lab can start it now" in clusters.ok("job.submit", "file.yaml", "-a", "any").err
    clusters.ok("job.wait", "from-file", "-a", "lab")  # it may need all of it
    program = "from openpai_tasks import submit; print(submit('true', cluster='any').backend.cluster.alias)"
    assert clusters.run("python", "-c", program).out == "lab\n"


def test_an_old_cluster_called_any_is_still_used(clusters):
    file = clusters.home / "clusters.yaml"
    before = file.read_text()
    file.write_text(before.replace("cluster_alias: lab", "cluster_alias: any"))
    ran = clusters.ok("job.sub", "true", "-a", "any", "--preview")
    file.write_text(before)
    assert "note: 'any' is the alias of one of your clusters" in ran.err
