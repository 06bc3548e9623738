"""Jobs whose end is sent to an address; a receiver of the driver answers, sometimes with an error."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.endurance.operations.jobs import Submit, submission
from tests.endurance.plan import Options, Step
from tests.endurance.world import FINAL, Record, World

PATIENCE = (
    90.0  # seconds for deliveries that failed before; the second attempt comes after 5, the third after 25
)


class Receiver(ThreadingHTTPServer):
    """Records what is posted to ``/LABEL/ANSWERS``; each letter is one answer: o (200), e (500), d (drop)."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lock = threading.Lock()
        self.got: list[dict[str, Any]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def note(self, label: str, answers: str, headers: Any, body: bytes) -> str:
        """Keep a message; return the answer to it."""
        with self.lock:
            answer = answers[min(sum(one["label"] == label for one in self.got), len(answers) - 1)]
            delivery, attempt = (headers.get(f"X-Openpai-{name}", "") for name in ("Delivery", "Attempt"))
            message = json.loads(body)
            self.got.append(
                {"label": label, "answer": answer, "delivery": delivery, "attempt": attempt, **message}
            )
            return answer


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        _, label, answers = self.path.split("/")
        body = self.rfile.read(int(self.headers["content-length"]))
        answer = self.server.note(label, answers, self.headers, body)
        if answer != "d":
            self.send_response(200 if answer == "o" else 500)
            self.send_header("content-length", "0")
            self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


class Notify(Submit):
    kind, weight = "notify", 2

    def __init__(self) -> None:
        self._receivers: dict[World, Receiver] = {}

    def prepare(self, world: World) -> None:
        self._receivers[world] = Receiver()

    def finish(self, world: World) -> None:
        if receiver := self._receivers.pop(world, None):
            receiver.shutdown()
            receiver.server_close()

    def plan(self, chance: random.Random, label: str, labels: list[str]) -> Options:
        options = super().plan(chance, label, labels)
        return {**options, "random_name": False, "answers": chance.choice(("o", "o", "eo", "do", "edo"))}

    def command(self, world: World, options: Options) -> list[str]:
        port = self._receivers[world].server_address[1]
        address = f"http://127.0.0.1:{port}/{options['label']}/{options['answers']}"
        return submission(world, options, "--notify", address)

    def collect(self, world: World, steps: Sequence[Step]) -> list[dict[str, Any]]:
        """Wait until the receiver has accepted a message about each job that has ended."""
        labels = {step.options["label"] for step in steps}
        listed = json.loads(world.pai("job.list", "--limit", "100000", "-o", "json").stdout)
        ended = {job["name"] for job in listed if job["name"] in labels and job["state"] in FINAL}
        receiver = self._receivers[world]
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with receiver.lock:
                if ended <= {one["name"] for one in receiver.got if one["answer"] == "o"}:
                    break
            time.sleep(0.2)
        with receiver.lock:
            return list(receiver.got)

    def check(self, record: Record) -> Iterator[str]:
        if record.plan.has("upgrade"):
            return  # 0.2.0 has no hooks, and our commands only report that the server is older
        steps = {ran.step.options["label"] for ran in record.of_kind(self.kind)}
        states = {job["name"]: job["state"] for job in record.jobs if job["name"] in steps}
        got: list[dict[str, Any]] = record.collected(self.kind) or []
        for name, state in states.items():
            accepted = [one for one in got if one["name"] == name and one["answer"] == "o"]
            if not accepted:
                yield f"{name}: no message about its end was delivered"
            if wrong := {one["state"] for one in accepted} - {state}:
                yield f"{name} is {state}, but messages say {wrong}"
        for one in got:
            if one["name"] not in states:
                yield f"{one['name']}: a message about a job that is not there"
            if not one["delivery"] or not one["attempt"].isdigit():
                yield f"{one['name']}: a message without the headers of its delivery"
        for delivery in {one["delivery"] for one in got}:
            attempts = [int(one["attempt"] or 0) for one in got if one["delivery"] == delivery]
            if attempts != sorted(attempts):
                yield f"delivery {delivery}: attempts in the order {attempts}"
