"""Sources and files of jobs on the storage, and their removal, on a real embedded cluster."""

import json
import os
import pty
import re
import time

import pytest


def storage(shell):
    """Return the folder of the user on the storage, which is created for the first files."""
    home = shell.home / "local" / "storage" / "home"
    return next(home.iterdir(), home / "nobody-yet")


def names(folder, pattern):
    return sorted(str(path.relative_to(folder)) for path in folder.glob(pattern))


def submit(shell, name, command="cat code.py", *flags):
    (shell.project / "code.py").write_text(f"# {name.partition('-')[0]}\n")
    words = ("job.sub", command, "-j", name, "--sources", "code.py", "--mem", "64m", "--cpu", "1")
    return shell.inv(*words, *flags)


def wait(shell, *jobs):
    for name in jobs:
        assert shell.inv("job.wait", name, "--timeout", "60").code in (0, 1, 143)


def left_by(root, name, like, **changes):
    """Create a folder with output as a job leaves it, its reference copied from another job."""
    [reference] = (root / "jobs" / like / "source").iterdir()
    folder = root / "jobs" / name
    for part in ("source", "output"):
        (folder / part).mkdir(parents=True)
    content = {**json.loads(reference.read_text()), "job": name, **changes}
    (folder / "source" / reference.name).write_text(json.dumps(content))
    (folder / "output" / "y").write_text("y")
    age(folder, 90)
    return folder


def age(folder, days):
    """Set the times of all files in the folder back by these days."""
    then = time.time() - days * 86400
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (then, then))


def test_unchanged_sources_are_sent_once_and_the_record_names_the_archive(cluster):
    assert submit(cluster, "same-1", "cat code.py", "-f").out == "# same\n"
    [archive] = (storage(cluster) / "sources").iterdir()
    before = archive.stat()
    assert submit(cluster, "same-2", "cat code.py", "-f").out == "# same\n"
    after = archive.stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)
    assert names(storage(cluster), "sources/*") == [f"sources/{archive.name}"]
    for job in ("same-1", "same-2"):
        record = (cluster.project / ".openpai" / "jobs" / job / "record.json").read_text()
        assert f'"archive": "sources/{archive.name}"' in record
        assert names(storage(cluster), f"jobs/{job}/source/*") == [
            f"jobs/{job}/source/{archive.name.removesuffix('.tar.gz')}.json"
        ]


def test_damaged_archive_fails_the_job_and_the_next_job_sends_it_again(cluster):
    submit(cluster, "hurt-1", "cat code.py", "-f")
    reference = names(storage(cluster), "jobs/hurt-1/source/*.json")[0]
    archive = storage(cluster) / "sources" / (os.path.basename(reference).removesuffix(".json") + ".tar.gz")
    whole = archive.read_bytes()
    document = cluster.ok("job.sub", "cat code.py", "-j", "hurt-2", "--sources", "code.py", "--preview").out
    (cluster.project / "hurt.yaml").write_text(document)
    archive.write_bytes(whole[:-9] + bytes(9))
    ran = cluster.inv("job.submit", "hurt.yaml", "--follow")
    assert ran.code == 1 and "error: the sources are damaged: " in ran.out and "# hurt" not in ran.out
    assert submit(cluster, "hurt-3", "cat code.py", "-f").out == "# hurt\n"
    assert archive.read_bytes() == whole


def test_sweep_sends_one_archive_for_all_its_jobs(cluster):
    (cluster.project / "code.py").write_text("# sweep\n")
    before = names(storage(cluster), "sources/*")
    cluster.ok(
        *("job.sub", "cat code.py; echo {x}", "-j", "swept", "--sources", "code.py"),
        *("--sweep", "x=1..3", "--mem", "64m", "--cpu", "1"),
    )
    [archive] = set(names(storage(cluster), "sources/*")) - set(before)
    sha256 = os.path.basename(archive).removesuffix(".tar.gz")
    assert len(names(storage(cluster), f"jobs/swept-*/source/{sha256}.json")) == 3


def test_refused_sweep_leaves_no_files(cluster):
    (cluster.project / "code.py").write_text("# refused\n")
    folder = cluster.home / "local" / "storage"
    before = names(folder, "**/*.*")
    words = ("job.sub", "echo {x}", "-j", "unwanted", "--sources", "code.py", "--sweep", "x=1..3")
    assert cluster.inv(*words, "--vc", "no-such").code == 122
    assert names(folder, "**/*.*") == before


def test_usage_reports_what_each_job_left_behind(cluster):
    submit(cluster, "sized-1", 'head -c 1000 /dev/zero > "$PAI_OUTPUT_DIR/z"', "-f")
    submit(cluster, "sized-2", "exit 3", "-f")
    found = cluster.ok("storage.usage", "-o", "json").json()
    rows = {job["name"]: job for job in found["jobs"]}
    one, two = rows["sized-1"], rows["sized-2"]
    assert (one["state"], one["output"], one["files"]) == ("SUCCEEDED", 1000, 1)
    assert (two["state"], two["output"], two["files"]) == ("FAILED", 0, 0)
    assert one["archives"] == two["archives"] and one["source"] == two["source"] > 0
    assert 0 <= one["age"] < 600
    [archive] = [row for row in found["archives"] if row["sha256"] == one["archives"][0]]
    assert archive["jobs"] == ["sized-1", "sized-2"] and archive["size"] == one["source"]
    assert one["notes"] > 0 and one["other"] == 0
    kept = sum(job["output"] + job["notes"] + job["other"] for job in found["jobs"])
    kept += sum(folder["size"] for folder in found["others"])
    assert found["total"] == kept + sum(row["size"] for row in found["archives"])
    table = cluster.ok("storage.usage").out
    assert re.search(r"^sized-1 +SUCCEEDED .* 1000 B ", table, re.M)
    assert "shared by several jobs" in table.splitlines()[-1]


def test_clean_removes_only_files_of_old_finished_jobs(cluster):
    submit(cluster, "old-1", "echo x > $PAI_OUTPUT_DIR/x", "-f", "--workspace", "cleaned")
    submit(cluster, "old-2", "sleep 600", "--workspace", "cleaned")
    submit(cluster, "young-1", "true", "-f", "--workspace", "cleaned")
    submit(cluster, "broken-1", "exit 1", "-f", "--workspace", "cleaned")
    root = storage(cluster) / "cleaned"
    size = sum(len(path.read_bytes()) for path in left_by(root, "vanished", "broken-1").glob("*/*"))
    (root / "jobs" / "coming" / "source").mkdir(parents=True)  # a submission that is under way
    (root / "notes.txt").write_text("a person's own")
    flags = ("--workspace", "cleaned")
    assert cluster.ok("storage.clean", "--older-than", "30d", "--preview", *flags).out.splitlines() == [
        "would be removed: vanished",
        f"1 job, 0 archives, {size} B would be removed",
    ]
    ran = cluster.inv("storage.clean", "--older-than", "30d", *flags)
    assert ran.code == 120 and "--yes" in ran.err and (root / "jobs" / "vanished").exists()
    time.sleep(1.1)
    done = cluster.ok(
        *("storage.clean", "--older-than", "1s", "--yes", "--state", "succeeded,GONE", "-o", "json", *flags)
    ).json()
    assert sorted(done["jobs"]) == ["old-1", "vanished", "young-1"] and done["kept"] == []
    assert names(root, "jobs/*") == ["jobs/broken-1", "jobs/coming", "jobs/old-2"]
    assert len(done["archives"]) == 1  # that of young-1; old-2 still uses the one that it shares with old-1
    assert len(names(root, "sources/*")) == 2 and (root / "notes.txt").exists()
    cluster.ok("job.stop", "old-2")
    wait(cluster, "old-2")
    time.sleep(1.1)
    cluster.ok("storage.clean", "--older-than", "1s", "--yes", *flags)
    assert names(root, "jobs/*") == ["jobs/coming"] and names(root, "sources/*") == []
    assert cluster.ok("storage.clean", "--older-than", "1s", *flags).out.startswith("0 jobs, 0 archives")


def test_files_of_jobs_of_other_clusters_and_users_are_left_alone(cluster):
    submit(cluster, "shared-1", "true", "-f", "--workspace", "two")
    root = storage(cluster) / "two"
    left_by(root, "theirs", "shared-1", cluster="http://other")
    left_by(root, "bobs", "shared-1", user="bob")
    left_by(root, "mine", "shared-1")
    done = cluster.ok(
        "storage.clean", "--older-than", "30d", "--yes", "--workspace", "two", "-o", "json"
    ).json()
    assert (done["jobs"], done["archives"]) == (["mine"], [])
    rows = cluster.ok("storage.usage", "--workspace", "two", "-o", "json").json()["jobs"]
    states = {"shared-1": "SUCCEEDED", "theirs": "ELSEWHERE", "bobs": "FOREIGN"}
    assert {row["name"]: row["state"] for row in rows} == states
    for name, word in (("theirs", "http://other"), ("bobs", "'bob'")):
        ran = submit(cluster, name, "true", "--workspace", "two")
        assert ran.code == 122 and word in ran.err
        ran = cluster.inv("job.sub", "true", "-j", name, "--workspace", "two")  # its output would be mixed up
        assert ran.code == 122 and word in ran.err


def test_folder_of_the_user_is_never_cleaned_as_a_job(cluster):
    submit(cluster, "real-1", "true", "-f", "--workspace", "own")
    root = storage(cluster) / "own" / "jobs"
    (root / "mine").mkdir()
    (root / "mine" / "thesis.txt").write_text("years of work")
    (root / "odd" / "source").mkdir(parents=True)
    (root / "odd" / "source" / f"{'0' * 64}.json").write_text("{}")
    age(root, 90)
    flags = ("--workspace", "own")
    assert cluster.ok("storage.clean", "--older-than", "30d", "--yes", *flags).out.startswith("0 jobs,")
    found = cluster.ok("storage.usage", "-o", "json", *flags).json()
    assert [job["name"] for job in found["jobs"]] == ["real-1"]
    assert [(one["name"], one["size"]) for one in found["others"]] == [("mine", 13), ("odd", 2)]
    assert "not a job's: mine (1 file, 13 B)" in cluster.ok("storage.usage", *flags).out
    assert (root / "mine" / "thesis.txt").read_text() == "years of work" and (
        root / "odd" / "source"
    ).exists()


def test_files_of_the_user_in_a_job_folder_are_kept_by_clean(cluster):
    submit(cluster, "mixed-1", "echo x > $PAI_OUTPUT_DIR/x", "-f", "--workspace", "mixed")
    folder = storage(cluster) / "mixed" / "jobs" / "mixed-1"
    (folder / "notes.txt").write_text("a person's own")
    (folder / "deadline").write_text("1\n")
    [row] = cluster.ok("storage.usage", "--workspace", "mixed", "-o", "json").json()["jobs"]
    assert (row["output"], row["other"]) == (2, 14)
    time.sleep(1.1)
    cluster.ok("storage.clean", "--older-than", "1s", "--yes", "--workspace", "mixed")
    assert [path.name for path in folder.rglob("*")] == ["notes.txt"]
    assert cluster.ok("storage.usage", "--workspace", "mixed", "-o", "json").json()["jobs"] == []


def test_job_without_sources_is_listed_and_can_be_cleaned(cluster):
    flags = ("--workspace", "bare")
    cluster.ok("job.sub", "echo x > $PAI_OUTPUT_DIR/x", "-j", "bare-1", "--mem", "64m", "-f", *flags)
    [row] = cluster.ok("storage.usage", "-o", "json", *flags).json()["jobs"]
    assert (row["name"], row["state"], row["output"], row["archives"]) == ("bare-1", "SUCCEEDED", 2, [])
    assert cluster.inv("job.sub", "true", "-j", "bare-2", "--vc", "no-such", *flags).code == 122
    assert names(storage(cluster), "bare/jobs/*") == ["bare/jobs/bare-1"]
    time.sleep(1.1)
    cluster.ok("storage.clean", "--older-than", "1s", "--yes", *flags)
    assert names(storage(cluster), "bare/jobs/*") == []


def test_selected_storage_that_jobs_cannot_use_is_reported_in_one_line(cluster):
    (cluster.project / "aside").mkdir()
    cluster.ok("storage.add", "aside", "--type", "local", "--path", str(cluster.project / "aside"))
    cluster.ok("storage.select", "aside")
    try:
        line = (
            "the selected storage 'aside' is not used for jobs, as the cluster cannot mount it;"
            " their files go to storage 'home'"
        )
        ran = submit(cluster, "aside-1", "cat code.py", "-f")
        assert (ran.code, ran.out, ran.err.splitlines().count(line)) == (0, "# aside\n", 1)
        assert cluster.ok("storage.usage").err == line + "\n"
    finally:
        cluster.ok("storage.forget", "aside")


@pytest.mark.parametrize("answer, is_there", [("n", True), ("", True), ("y", False)])
def test_clean_asks_on_a_terminal(cluster, answer, is_there):
    name = f"asked-{answer or 'none'}"
    submit(cluster, name, "true", "-f", "--workspace", name)
    time.sleep(1.1)
    master, terminal = pty.openpty()
    words = ("storage.clean", "--older-than", "1s", "--workspace", name)
    process = cluster.start("inv", *words, stdin=terminal)
    os.close(terminal)
    os.write(master, f"{answer}\n".encode())
    out, err = process.communicate(timeout=60)
    os.close(master)
    assert "[y/N]" not in out and name in err and "remove the files of 1 job " in err
    assert (storage(cluster) / name / "jobs" / name).exists() is is_there
    assert process.returncode == (120 if is_there else 0)


@pytest.mark.parametrize(
    "flags, word",
    [
        ((), "--older-than"),
        (("--older-than", "soon"), "'soon'"),
        (("--older-than", "0"), "'0'"),
        (("--older-than", "1d", "--state", "RUNNING"), "RUNNING"),
        (("--older-than", "1d", "--workspace", "../x"), "workspace"),
    ],
)
def test_bad_flags_of_clean_are_reported_in_one_line(cluster, flags, word):
    ran = cluster.inv("storage.clean", *flags)
    assert ran.code in (120, 123) and word in ran.err and len(ran.err.splitlines()) == 1
