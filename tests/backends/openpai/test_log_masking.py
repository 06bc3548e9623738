"""Debug logs contain no tokens or keys from URLs."""

import logging

from openpai_tasks.net.exchange import Exchange
from openpai_tasks.net.http_client import HttpClient
from tests.hostile import OK, Hostile


def test_tokens_in_urls_are_masked_in_debug_logs(caplog):
    with (
        Hostile(lambda request: [OK + b"Content-Length: 0\r\n\r\n"]) as server,
        caplog.at_level(logging.DEBUG),
    ):
        url = f"{server.uri}/logs/all?user=ann&token=eyJh&Sig=a%2Fb"
        HttpClient().request("GET", url, Exchange(10.0)).close()
    assert caplog.messages == [f"GET {server.uri}/logs/all?user=ann&token=***&Sig=*** -> 200"]
