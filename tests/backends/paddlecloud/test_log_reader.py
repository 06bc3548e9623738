"""Logs that are read to the end again and again, although the server returns only the last lines."""

from openpai_tasks.backends.paddlecloud.answers import PaddlePod
from openpai_tasks.backends.paddlecloud.log_reader import PaddleLog


class Pods:
    """The calls of a client, for one pod whose log grows."""

    def __init__(self, text="", phase="Running", most=None):
        self.text, self.phase, self.most = text, phase, most

    def logs(self, job, lines=10, pod=""):
        kept = self.text if self.most is None else self.text[-self.most :]
        if pod:
            return kept
        return "".join(f"{'=' * 26}{job}-trainer-{end}{'=' * 26}\n{end}: {kept}" for end in ("aa", "bb"))

    def workers(self, job="", role=None):
        return (PaddlePod(f"{job}-trainer-aa", self.phase),)


def read(log):
    return b"".join(log.read()).decode()


def opened(pods, **options):
    return PaddleLog(pods, "j", "j-trainer-aa", 0, **{"has_started": True, **options})


def test_each_read_returns_what_is_new():
    pods = Pods("x\n")
    log = opened(pods)
    assert (read(log), read(log)) == ("x\n", "")
    pods.text += "x\nx\n"  # the same lines again
    assert (read(log), read(log)) == ("x\nx\n", "")
    log.rewind()
    assert read(log) == "x\nx\nx\n"


def test_new_lines_are_found_after_the_beginning_was_cut_off():
    pods = Pods("".join(f"{number}\n" for number in range(100)), most=200)
    log = opened(pods)
    before = read(log)
    pods.text += "".join(f"{number}\n" for number in range(100, 120))
    assert before + read(log) == pods.text[-len(before) - 80 :]


def test_lines_that_were_lost_in_between_do_not_stop_reading():
    pods = Pods("a" * 50 + "\n", most=20)
    log = opened(pods)
    read(log)
    pods.text += "b" * 50 + "\n"
    assert read(log) == "b" * 19 + "\n"


def test_a_character_is_returned_when_all_its_bytes_have_arrived():
    pods = Pods("损\ufffd")
    log = opened(pods)
    assert read(log) == "损"
    pods.text = "损失\n"
    assert read(log) == "失\n"


def test_a_waiting_pod_has_no_output_yet():
    pods = Pods("the pod waits to be started\n", phase="Pending")
    log = opened(pods, has_started=False)
    assert read(log) == ""
    pods.phase, pods.text = "Running", "begun\n"
    assert read(log) == "begun\n" and not log.is_absent


def test_trainers_of_a_killed_job_are_found_by_their_order():
    pods = Pods("x\n")
    logs = [PaddleLog(pods, "j", "", index, has_started=True) for index in range(3)]
    assert list(map(read, logs)) == ["aa: x\n", "bb: x\n", ""]


def test_an_unknown_log_is_absent():
    log = opened(Pods("x\n"), is_known=False)
    assert (read(log), log.is_absent) == ("", True)
