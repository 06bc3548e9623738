"""Logs of requests contain no tokens, keys or passwords from URLs."""

import logging

import pytest

from openpai_tasks.errors import PathError
from openpai_tasks.net.exchange import Exchange
from openpai_tasks.net.http_client import HttpClient
from openpai_tasks.net.log_masking import REQUESTS, mask_keys
from openpai_tasks.storage.hdfs.store import HdfsStore
from tests.hostile import OK, Hostile


def test_tokens_in_urls_are_masked_in_debug_logs(caplog):
    with (
        Hostile(lambda request: [OK + b"Content-Length: 0\r\n\r\n"]) as server,
        caplog.at_level(logging.DEBUG),
    ):
        url = f"{server.uri}/logs/all?user=ann&token=eyJh&Sig=a%2Fb"
        HttpClient().request("GET", url, Exchange(10.0)).close()
    assert caplog.messages == [f"GET {server.uri}/logs/all?user=ann&token=***&Sig=*** -> 200"]


def test_logins_in_urls_are_masked():
    assert mask_keys("GET http://ann:secret@host:1/a@b -> 200") == "GET http://***@host:1/a@b -> 200"


def test_requests_to_hdfs_are_logged(caplog):
    with (
        Hostile(lambda request: [OK + b"Content-Length: 2\r\n\r\n{}"]) as server,
        caplog.at_level(logging.DEBUG, REQUESTS),
        pytest.raises(PathError),
    ):
        HdfsStore([f"127.0.0.1:{server.port}"], "ann", timeout=10).stat("/f")
    [line, *_] = caplog.messages
    assert line.startswith(f"GET http://127.0.0.1:{server.port}/webhdfs/v1/f?") and line.endswith(" -> 200")
