"""The user's folder on a login node."""

from __future__ import annotations

import stat
from types import SimpleNamespace

import pytest

from openpai_tasks.storage.sftp.login_node import _make_root


class Files:
    """A server on which another command creates the folder between the look and the request."""

    def __init__(self, *, appears: bool) -> None:
        self.appears, self.exists = appears, False

    def stat(self, path: str) -> SimpleNamespace:
        if not self.exists:
            raise FileNotFoundError
        return SimpleNamespace(st_mode=stat.S_IFDIR)

    def mkdir(self, path: str, mode: int) -> None:
        self.exists = self.appears
        raise OSError("Failure")


def test_a_folder_that_another_command_has_just_created_is_used():
    _make_root(Files(appears=True), "home")
    with pytest.raises(OSError, match="Failure"):
        _make_root(Files(appears=False), "home")
