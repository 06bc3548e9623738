"""The package of the tutorial trains: with four trainers, two parameter servers, and data from PFS."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np

PACKAGE = Path(__file__).parents[3] / "docs" / "tutorials" / "paddlecloud" / "job_word_emb"
HOME = "/pfs/datacenter1/home/user1"
KINDS = (
    {"cat", "dog", "horse", "cow"},
    {"fish", "bread", "grass", "corn"},
    {"hammer", "saw", "drill", "brush"},
)


def upload(user, source, target):
    for path in source.rglob("*.*"):
        if path.is_file() and "__pycache__" not in path.parts:
            place = f"{HOME}/{target}/{path.relative_to(source)}"
            content = {"file": (path.name, path.read_bytes())}
            answer = user.call("POST", "/api/v1/file/", params={"path": place}, files=content)
            assert answer.json()["msg"] == ""


def test_word_vectors_are_trained_and_downloaded(user1):
    upload(user1, PACKAGE / "data", "job_word_emb")
    upload(user1, PACKAGE, "jobs/word-emb")
    walk = {"parallelism": 4, "cpu": 2, "memory": "10Gi", "topology": "modules/train.py", "pservers": 2}
    assert user1.submit("word-emb", "", datacenter="datacenter1", **walk)["msg"] == ""
    status = user1.ended("word-emb")
    text = user1.logs("word-emb", n=100)
    assert status["succeeded"] == 4, text
    losses = [
        [float(one) for one in re.findall(r"loss ([\d.]+)", part)] for part in text.split("=" * 26)[2::2]
    ]
    assert len(losses) == 4 and all(one[-1] < 0.75 * one[0] for one in losses)
    answer = user1.call("GET", "/api/v1/file", params={"path": f"{HOME}/job_word_emb_model/vectors.npz"})
    model = np.load(io.BytesIO(answer.content))
    for kind in KINDS:
        for word in kind:
            assert nearest(model, word) in kind


def nearest(model, word):
    """Return the word whose vector has the smallest angle to that of this word."""
    words, vectors = list(model["words"]), model["vectors"]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    close = unit @ unit[words.index(word)]
    close[words.index(word)] = -1
    return words[int(close.argmax())]
