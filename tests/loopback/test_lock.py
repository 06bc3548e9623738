"""Whether a server runs in a folder."""

import fcntl
import os

from openpai_tasks.loopback.lock import LOCK, is_held


def test_a_lock_file_that_cannot_be_written_is_read(tmp_path):
    path = tmp_path / LOCK
    path.touch(mode=0o400)
    assert not is_held(tmp_path)
    handle = os.open(path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert is_held(tmp_path)
    os.close(handle)
