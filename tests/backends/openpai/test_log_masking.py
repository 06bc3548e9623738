"""Debug logs hold no key that an address carries."""

import logging

from openpai_tasks.net.log_masking import mask_addresses


def test_keys_in_addresses_are_masked_in_what_urllib3_logs(caplog):
    mask_addresses()
    log = logging.getLogger("urllib3.connectionpool")
    with caplog.at_level(logging.DEBUG, log.name):
        log.debug('%s "%s %s" %s', "http://host", "GET", "/logs/all?user=ann&token=eyJh&Sig=a%2Fb", 200)
    assert caplog.messages == ['http://host "GET /logs/all?user=ann&token=***&Sig=***" 200']
