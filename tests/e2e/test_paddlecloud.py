"""The walk of PaddleCloud's design document, typed as printed: data, submission, list, logs, output."""

import getpass
import re
import shutil
from pathlib import Path

import numpy
import pytest

from tests.conftest import Ran, make_shell
from tests.server.workshop import until

PACKAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "paddlecloud" / "job_word_emb"
USER = getpass.getuser()
HOME = f"/pfs/local/home/{USER}"
WALK = "paddlecloud submit ./job_word_emb -p 4 -c 2 -m 10Gi -t modules/train.py"
KINDS = (
    {"cat", "dog", "horse", "cow"},
    {"fish", "bread", "grass", "corn"},
    {"hammer", "saw", "drill", "brush"},
)
"""Words that occur in the same places of the data."""
WAIT = "import time\nwhile not os.path.exists({0!r}): time.sleep(0.05)\n"
"""Only jobs that have not ended are listed."""
SUBMITTED = "Collecting package ... Done\nUploading package ... Done\nStarting kubernetes job ... Done\n"


class Laptop:
    """A folder with the package, and an embedded cluster that the first command starts."""

    def __init__(self, folder: Path) -> None:
        self.shell = make_shell(folder)
        self.shell.environment["HOME"] = str(folder)
        self.folder = self.shell.project
        package = self.folder / "job_word_emb"
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        self.gate = folder / "gate"
        train = package / "modules" / "train.py"
        train.write_text(
            train.read_text().replace("\nimport os\n", f"\nimport os\n{WAIT.format(str(self.gate))}", 1)
        )
        (package / "data" / "more").mkdir()
        (package / "data" / "more" / "part-2.txt").write_text("the horse eats grass\n")

    def type(self, line: str) -> Ran:
        return self.shell.run(*line.split())

    def ok(self, line: str) -> Ran:
        ran = self.type(line)
        assert ran.code == 0, (line, ran)
        return ran


@pytest.fixture(scope="module")
def laptop(tmp_path_factory):
    made = Laptop(tmp_path_factory.mktemp("laptop"))
    yield made
    assert made.shell.pai("cluster.stop").code == 0


@pytest.fixture(scope="module")
def trained(laptop):
    """The walk up to the end of the job."""
    copied = laptop.ok(f"paddlecloud pfs cp -r ./job_word_emb/data {HOME}/job_word_emb")
    assert "started the embedded cluster" in copied.err  # nothing was configured
    submitted = laptop.ok(WALK)
    listed = laptop.ok("paddlecloud jobs")
    laptop.gate.touch()
    followed = laptop.ok("paddlecloud logs -f")
    return submitted, listed, followed


def test_the_data_is_on_pfs_as_a_tree(laptop, trained):
    listed = laptop.ok(f"paddlecloud pfs ls -r {HOME}/job_word_emb").out.splitlines()
    assert listed[0] == f"{HOME}/job_word_emb :"
    paths = [
        (line.split()[-3], line.split()[-1].removeprefix(f"{HOME}/job_word_emb/")) for line in listed[1:]
    ]
    assert paths == [("d", "more"), ("f", "more/part-2.txt"), ("f", "part-0.txt"), ("f", "part-1.txt")]


def test_submit_prints_what_the_walk_shows(trained):
    assert trained[0].out == f"{SUBMITTED}paddle-cluster-job submitted.\n"


def test_jobs_prints_the_table_of_the_walk(trained):
    header, row = trained[1].out.splitlines()
    assert header.split() == ["NAMESPACE", "NAME", "DESIRED", "SUCCESSFUL", "AGE"]
    namespace, name, desired, successful, age = row.split()
    assert (name, desired) == ("paddle-cluster-job", "4") and int(successful) <= 4
    assert namespace == re.sub("[@._]", "-", USER) and re.fullmatch(r"\d+s|-", age)


def test_logs_begin_with_the_pods(laptop, trained):
    first, *rest = laptop.ok("paddlecloud logs").out.splitlines()
    assert re.fullmatch(r"running pod list:  \[(\('Succeeded', '127\.\d+\.\d+\.\d+'\)(, )?){4}\]", first)
    printed = [line[:14] for line in rest if line.startswith("trainer")]
    assert printed == [f"trainer {number} of 4" for number in range(4)]
    assert trained[2].out.count("pass 0 ended") == 4  # followed until the end


def test_the_output_is_downloaded_and_shows_that_it_learned(laptop, trained):
    laptop.ok(f"paddlecloud pfs cp -r {HOME}/job_word_emb_model ./model")
    with numpy.load(laptop.folder / "model" / "vectors.npz") as model:
        assert all(nearest(model, word) in kind for kind in KINDS for word in kind)
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", laptop.ok("paddlecloud logs").out)]
    assert min(losses) < max(losses) / 2


def nearest(model, word):
    """Return the word whose vector has the smallest angle to that of this word."""
    words, vectors = list(model["words"]), model["vectors"]
    unit = vectors / numpy.linalg.norm(vectors, axis=1, keepdims=True)
    close = unit @ unit[words.index(word)]
    close[words.index(word)] = -1
    return words[int(close.argmax())]


def test_get_shows_the_tables_of_the_go_client(laptop, trained):
    ran = laptop.ok("paddlecloud get jobs")
    assert ran.out.count("\n") == 1
    assert ran.err == "not listed: 1 ended job (`paddlecloud jobs -a` lists all)\n"
    header, row = laptop.ok("paddlecloud get jobs -a").out.splitlines()
    assert header.split() == ["NAME", "ACTIVE", "SUCC", "FAIL", "START", "COMP", "PS_READY", "PS_TOTAL"]
    name, active, succeeded, failed, start, end, *_ = row.split()
    assert (name, active, succeeded, failed) == ("paddle-cluster-job", "0", "4", "0")
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", when) for when in (start, end))
    header, *rows = laptop.ok("paddlecloud get workers paddle-cluster-job").out.splitlines()
    assert header.split() == ["NAME", "STATUS", "START", "EXIT_CODE", "MSG"]
    assert [row.split()[1] for row in rows] == ["Succeeded"] * 4
    header, *rows = laptop.ok("paddlecloud get quota").out.splitlines()
    assert header.split() == ["RESOURCE", "LIMIT", "USED"] and {"Memory", "CPU"} <= {
        r.split()[0] for r in rows
    }


def test_one_workers_log_has_no_heading(laptop, trained):
    rows = laptop.ok("paddlecloud get workers paddle-cluster-job").out.splitlines()
    ran = laptop.ok(f"paddlecloud logs -w {rows[2].split()[0]} paddle-cluster-job -n 1")
    assert ran.out.startswith("pass 0 ended: loss") and ran.out.count("\n") == 1


def test_openpai_commands_see_the_job_and_its_files(laptop, trained):
    assert laptop.ok("pai job.status paddle-cluster-job -o json").json()["state"] == "SUCCEEDED"
    assert laptop.ok("pai storage.cat pai://local/home/job_word_emb/part-0.txt").out.startswith("the dog")


def test_a_name_in_use_is_refused_before_the_upload(laptop, trained):
    (laptop.folder / "job_word_emb" / "new.txt").write_text("new")
    ran = laptop.type(f"{WALK} -jobname paddle-cluster-job")
    assert ran.code == 1 and ran.out == "" and "exists already (succeeded)" in ran.err
    assert laptop.type(f"paddlecloud ls {HOME}/jobs/paddle-cluster-job/new.txt").code == 1


@pytest.mark.parametrize(
    "line",
    [
        "paddlecloud submit -jobname NAME -cpu 1 -entry true ./job_word_emb",
        "paddlecloud submit ./job_word_emb --entry=true --jobname NAME -pservers=0",
        "paddlecloud -e true submit -jobname=NAME ./job_word_emb",
        "pai paddle.submit ./job_word_emb -e true --jobname NAME -p 1 -c 1 -m 1Gi",
        "inv paddle.submit -jobname=NAME -parallelism 1 -min_instance 1 ./job_word_emb -entry true",
    ],
)
def test_every_order_and_spelling_of_options_submits(laptop, trained, line, request):
    name = f"spelt-{request.node.callspec.indices['line']}"
    ran = laptop.ok(line.replace("NAME", name))
    assert ran.out == f"{SUBMITTED}{name} submitted.\n"


def test_killed_jobs_are_listed_with_a_and_removed_with_rm(laptop, trained):
    laptop.ok("paddlecloud submit ./job_word_emb -entry pwd -jobname doomed -pservers 0")
    assert laptop.ok("paddlecloud kill doomed").out == ""
    folder = f"{HOME}/jobs/doomed"
    until(lambda: "doomed" not in laptop.ok("paddlecloud jobs").out)  # it is Terminating before that
    rows = {row.split()[0]: row for row in laptop.ok("paddlecloud get -a jobs").out.splitlines()}
    assert {f"spelt-{number}" for number in range(5)} <= rows.keys()
    assert rows["doomed"].split() == ["doomed", "Terminated", *["-"] * 6]
    assert laptop.ok(f"paddlecloud ls {folder}").out
    laptop.ok("paddlecloud kill doomed -rm")
    assert "doomed" not in laptop.ok("paddlecloud jobs -a").out
    gone = laptop.type(f"paddlecloud ls {folder}")
    assert gone.code == 1 and gone.err == f"error: {folder}: no such file or folder\n"
    again = laptop.type("paddlecloud kill -rm doomed")
    assert again.code == 1 and "no job named 'doomed'" in again.err


def test_a_failed_job_fails_the_following_of_its_logs(laptop, trained):
    laptop.ok("paddlecloud submit ./job_word_emb -entry false -jobname broken -pservers 0")
    ran = laptop.type("paddlecloud logs broken -f")
    assert ran.code == 1 and "broken" in ran.err
    assert laptop.shell.pai("paddle.logs", "broken", "--follow").code == 1  # the job's own exit code


def test_previews_send_nothing(laptop, trained):
    ran = laptop.ok(f"{WALK} -dry-run -jobname preview")
    assert ran.json()["name"] == "preview" and ran.json()["memory"] == "10Gi"
    assert "modules/train.py" in ran.err and "nothing was sent" in ran.err
    assert "preview" not in laptop.ok("paddlecloud jobs -a").out


def test_an_upload_that_fails_starts_nothing(laptop, trained):
    """A file of the package where the job's folder must have a folder cannot be uploaded."""
    laptop.ok(f"paddlecloud mkdir {HOME}/jobs/blocked/modules/train.py")
    ran = laptop.type(f"{WALK} -jobname blocked")
    assert ran.code == 1 and ran.out == "Collecting package ... Done\n"
    assert "[ERROR]" in ran.err and "train.py" in ran.err and "did not arrive" in ran.err
    assert "blocked Terminated" in " ".join(laptop.ok("paddlecloud get jobs -a").out.split())


def test_files_are_copied_listed_and_removed_in_both_spellings(laptop, trained):
    for name in ("a-1.txt", "a-2.txt", "b.txt"):
        (laptop.folder / name).write_text(name)
    laptop.ok(f"paddlecloud mkdir {HOME}/in")
    ran = laptop.ok(f"paddlecloud cp a-1.txt a-2.txt b.txt {HOME}/in")
    assert ran.err.count("[INFO]  Uploaded ") == 3 and ran.out.startswith("3 copied")
    again = laptop.ok(f"paddlecloud cp -v -chunksize 4096 a-1.txt {HOME}/in/")
    assert "[INFO]  Unchanged " in again.err and "1 skipped" in again.out
    laptop.ok(f"paddlecloud pfs cp {HOME}/in/a-* back/")
    assert sorted(path.name for path in (laptop.folder / "back").iterdir()) == ["a-1.txt", "a-2.txt"]
    assert laptop.ok(f"paddlecloud rm {HOME}/in/a-1.txt").out == f"rm {HOME}/in/a-1.txt\n"
    refused = laptop.type(f"paddlecloud rm {HOME}/in")
    assert refused.code == 1 and "is a folder that is not empty; --recursive removes it all" in refused.err
    laptop.ok(f"paddlecloud pfs rm --recursive {HOME}/in")
    assert laptop.type(f"paddlecloud ls {HOME}/in").code == 1


def test_file_puts_gets_and_lists_as_the_go_client_did(laptop, trained):
    laptop.ok(f"paddlecloud file put job_word_emb/data {HOME}/put")
    laptop.ok(f"paddlecloud file put job_word_emb/data/ {HOME}/contents")
    laptop.ok(f"paddlecloud file put job_word_emb/data/part-0.txt {HOME}/contents")
    assert laptop.ok(f"paddlecloud file ls {HOME}/put").out == "data\n"
    assert laptop.ok(f"paddlecloud file ls {HOME}/contents").out == "more\npart-0.txt\npart-1.txt\n"
    laptop.ok(f"paddlecloud file get {HOME}/contents/part-0.txt got.txt")
    assert (laptop.folder / "got.txt").read_bytes() == (PACKAGE / "data" / "part-0.txt").read_bytes()
    assert laptop.type(f"paddlecloud file get {HOME}/contents/part-0.txt got.txt").code == 2
    assert laptop.type(f"paddlecloud file get {HOME}/contents/nothing new.txt").code == 1
    assert not (laptop.folder / "new.txt").exists()


@pytest.mark.parametrize(
    "path",
    ["/pfs/local/home/somebody-else/x", "/pfs/elsewhere/home/me/x", "/pfs/local", "/pfs/local/public/x"],
)
def test_places_of_others_are_not_written(laptop, trained, path):
    ran = laptop.type(f"paddlecloud cp job_word_emb/pserver.py {path}")
    assert ran.code == (2 if "elsewhere" in path else 1) and "Uploaded" not in ran.err
    assert ran.err.splitlines()[-1].startswith("error: ")


def test_the_program_reads_the_config_file_of_the_go_client(laptop, trained):
    """The printed configuration of the embedded cluster, under another name, is used as the current one."""
    config = laptop.ok("pai cluster.credentials local --type paddlecloud").out
    (laptop.shell.home.parent / ".paddle").mkdir()
    file = laptop.shell.home.parent / ".paddle" / "config"
    file.write_text(
        config.replace("name: local", "name: dc1").replace("datacenter: local", "datacenter: dc1")
    )
    try:
        ran = laptop.ok(f"paddlecloud ls /pfs/dc1/home/{USER}/job_word_emb")
        assert f"/pfs/dc1/home/{USER}/job_word_emb/part-0.txt" in ran.out
        assert "paddle-cluster-job" in laptop.ok("paddlecloud jobs -a").out
        assert "paddle-cluster-job" in laptop.ok("paddlecloud -dc local jobs -a").out
        file.write_text("{")
        broken = laptop.type("paddlecloud jobs")
        assert broken.code == 1 and "is not valid YAML" in broken.err
    finally:
        file.unlink()


def test_files_arrive_whole_in_chunks_of_every_size(laptop, trained):
    content = bytearray(range(256)) * 1024
    (laptop.folder / "large").write_bytes(content)
    laptop.ok(f"paddlecloud cp -chunksize 64 large {HOME}/large")
    content[100_000] = 7
    (laptop.folder / "large").write_bytes(content)
    assert laptop.ok(f"paddlecloud cp large {HOME}/large -chunksize=4").out.startswith("1 copied")
    laptop.ok(f"paddlecloud cp -chunksize 32768 {HOME}/large back-again")
    assert (laptop.folder / "back-again").read_bytes() == content
