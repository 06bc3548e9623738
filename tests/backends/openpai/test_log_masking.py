"""Debug logs contain no tokens or keys from URLs."""

import logging

from openpai_tasks.net.log_masking import mask_addresses


def test_tokens_in_urls_are_masked_in_urllib3_debug_logs(caplog):
    mask_addresses()
    log = logging.getLogger("urllib3.connectionpool")
    with caplog.at_level(logging.DEBUG, log.name):
        log.debug('%s "%s %s" %s', "http://host", "GET", "/logs/all?user=ann&token=eyJh&Sig=a%2Fb", 200)
    assert caplog.messages == ['http://host "GET /logs/all?user=ann&token=***&Sig=***" 200']
