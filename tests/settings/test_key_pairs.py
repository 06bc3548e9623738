"""Stored SSH key pairs."""

from __future__ import annotations

from pathlib import Path

from openpai_tasks.settings.key_pairs import KeyPair, load_or_create_pair, read_pair


def test_key_pair_is_created_once_and_is_private(tmp_path: Path) -> None:
    first = load_or_create_pair(tmp_path / "ssh", "job", "comment")
    assert load_or_create_pair(tmp_path / "ssh", "job", "other") == first
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "ssh").iterdir()} == {0o600}
    assert first.private not in repr(first) and "PRIVATE" not in repr(first)


def test_key_pair_needs_both_files(tmp_path: Path) -> None:
    assert read_pair(tmp_path, "job") is None
    (tmp_path / "job.pub").write_text("ssh-ed25519 A")
    assert read_pair(tmp_path, "job") is None
    (tmp_path / "job").write_text("private")
    assert read_pair(tmp_path, "job") == KeyPair("ssh-ed25519 A", "private")
