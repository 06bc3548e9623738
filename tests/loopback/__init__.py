"""Tests of openpai_tasks.loopback."""
