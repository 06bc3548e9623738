"""The examples of docs/runtime.md and docs/pytorch.md run: programs are written, commands run in order."""

import importlib.util
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
PAGE, PYTORCH = DOCS / "runtime.md", DOCS / "pytorch.md"
pytestmark = pytest.mark.timeout(300)  # many commands, one after the other
EXPECTED = (
    "loss 0.122",
    ".pai/checkpoints/state/",
    "model.json",
    "batch\n",
    "works in batch",
    "model/best.pt",
    "rank 1 of 2",
)
"""What the commands print, among other things."""


TRAIN = """
import argparse, json, os, time
from openpai_tasks import runtime

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--hidden", type=int, default=32)
args = parser.parse_args()

def write(path):
    with open(path, "w") as file:
        json.dump(state, file)

checkpoint = runtime.checkpoint("training.pt")
state = {"epoch": 0, "weight": 0.0}
path = checkpoint.latest()
if path:
    with open(path) as file:
        state = json.load(file)
print(f"process {os.getpid()} starts after epoch {state['epoch']} on cpu", flush=True)
for epoch in range(state["epoch"] + 1, args.epochs + 1):
    state = {"epoch": epoch, "weight": state["weight"] - 2 * args.lr * (state["weight"] - 3)}
    loss = (state["weight"] - 3) ** 2 + 1 / args.hidden
    runtime.log_metric("loss", loss, step=epoch)
    print(f"epoch {epoch}: loss {loss:.4f}", flush=True)
    if epoch % 5 == 0 or epoch == args.epochs:
        checkpoint.save(write)
    while epoch == 12 and not path:  # until the page kills it
        time.sleep(0.1)
        print("waiting", flush=True)
write("model.pt")
"""
"""Fits one weight with the flags, output, metrics and checkpoints of the page's train.py, without PyTorch."""
RANKS = """
from openpai_tasks import runtime
found = runtime.init_distributed()
print(f"rank {found.rank} of {found.world_size}: loss 0.0")
"""


def blocks(text):
    """Return the name of each program with its text, and None with each block of commands, in order."""
    found = re.findall(r"<!-- (?:file: (\S+)|run) -->\n```(?:python|sh)\n(.*?)```", text, re.S)
    return [(name or None, content) for name, content in found]


def run_page(shell, text, programs=(), **variables):
    """Run a page in the shell, some of its programs replaced; return all that its commands printed."""
    printed = ""
    for name, content in blocks(text):
        if name:
            (shell.project / name).write_text(dict(programs).get(name, content))
            continue
        for line in content.splitlines():
            ran = shell.run("sh", "-c", line, **variables)
            assert ran.code == 0, (line, ran)
            printed += ran.out
    return printed


def test_every_program_of_the_page_is_run():
    text = PAGE.read_text()
    assert text.count("```python") == text.count("<!-- file: ") + 1  # the line that imports the runtime


def test_examples_run_in_order(cluster):
    printed = run_page(cluster, PAGE.read_text())
    assert [text for text in EXPECTED if text not in printed] == []


def test_the_pytorch_page_runs_in_order(cluster):
    """With PyTorch its own programs; without, programs with the same flags, output and checkpoints."""
    known = cluster.ok("cluster.credentials", "local", "-o", "json").json()
    text = PYTORCH.read_text().replace("<!-- run: cluster -->", "<!-- run -->")
    text = text.replace("https://pai.example.org --user ann", f"{known['uri']} --user {known['user']}")
    text = text.replace("--gpu 1 ", "")  # this cluster may have none
    programs = {} if importlib.util.find_spec("torch") else {"train.py": TRAIN, "ddp.py": RANKS}
    printed = run_page(cluster, text, programs, OPENPAI_PASSWORD=known["password"])
    starts = [int(epoch) for epoch in re.findall(r"starts after epoch (\d+)", printed)]
    assert starts[:2] == [0, 0] and 10 <= starts[2] < 200 and starts[3] == 200  # laptop, job, killed, again
    assert "model.pt" in printed and "rank 1 of 2" in printed
    assert re.search(r"^tune-lr-0_01-hidden-\d+ +SUCCEEDED", printed, re.M)


def test_the_programs_of_the_pytorch_page_are_valid_python():
    programs = {name: content for name, content in blocks(PYTORCH.read_text()) if name}
    assert set(programs) == {"train.py", "ddp.py"}
    for name, content in programs.items():
        compile(content, name, "exec")
