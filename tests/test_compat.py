"""Workarounds for bugs of Python."""

import subprocess
import sys
import threading
import time

import pytest

from openpai_tasks.compat import wait_for_event

INTERRUPTED = """
import random, signal, threading
from openpai_tasks.compat import wait_for_event

def interrupt(number, frame):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
for _ in range(2000):
    event = threading.Event()
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00002, 0.0003))
        while True:
            wait_for_event(event, 0.00001)
    except KeyboardInterrupt:
        event.set()
print("never locked")
"""


def test_event_can_be_set_after_ctrl_c_interrupts_a_wait():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr) == ("never locked\n", "")


def test_wait_ends_when_the_event_is_set_or_on_timeout():
    event = threading.Event()
    assert wait_for_event(event, 0.01) is False
    threading.Timer(0.05, event.set).start()
    began = time.monotonic()
    assert wait_for_event(event, 60) is True and time.monotonic() - began < 30
    assert wait_for_event(event, 0) is True


WITHOUT_MEMORY = """
import resource, threading
from openpai_tasks.compat import refuse_threads_without_memory

refuse_threads_without_memory()
thread = threading.Thread(target=print, args=["runs"])
thread.start()
thread.join()
pages = int(open("/proc/self/statm").read().split()[0])
stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
limit = pages * resource.getpagesize() + stack + (64 << 10)  # enough for its stack, but for little else
resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
try:
    threading.Thread(target=print, args=["runs without memory"], daemon=True).start()
except RuntimeError as err:
    print(err)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_thread_without_memory_is_refused_instead_of_waited_for_forever():
    words = ["sh", "-c", 'ulimit -s 8192; exec "$@"', "sh", sys.executable, "-c", WITHOUT_MEMORY]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr) == ("runs\ncan't start new thread\n", "")
