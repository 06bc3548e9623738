"""A bucket whose server and keys are given, on a machine without AWS settings.

botocore would find the same, but loading it takes longer than most commands.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from openpai_tasks.storage.objects.s3.signing import S3Endpoint, SigningScope

FILES = ("~/.aws/config", "~/.aws/credentials", "~/.boto", "/etc/boto.cfg")
PREFIXES = ("AWS_", "BOTO_")
HARMLESS = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE"}
"""Variables that do not matter beside given keys, or are read here."""
BUNDLES = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE")
AMAZON = ("amazonaws.com", "amazonaws.com.cn")
SPECIAL = ("--", "s3alias")
"""In the names of buckets that are not reached like others: S3 Express, access points."""
SCOPE = SigningScope("us-east-1", "s3")


class S3Login(NamedTuple):
    """The keys that sign a request."""

    access_key: str
    secret_key: str
    token: str | None


class GivenAccount:
    """The endpoint and keys of a bucket."""

    def __init__(self, bucket: str, endpoint: str, login: S3Login) -> None:
        self._bucket, self._server, self._login = bucket, urlsplit(endpoint), login

    @property
    def certificates(self) -> str | bool:
        if self._server.scheme != "https":
            return True
        import certifi

        named = (os.environ.get(name) for name in BUNDLES)
        return next(filter(None, named), None) or certifi.where()

    def login(self) -> S3Login:
        return self._login

    def locate(self, region: str | None) -> S3Endpoint:
        """Return the endpoint; botocore knows what to do in another region."""
        server = self._server
        if region is not None:
            from openpai_tasks.storage.objects.s3.account import S3Account

            key, secret, token = self._login
            return S3Account(self._bucket, server.geturl(), key, secret, token or "").locate(region)
        url = SplitResult(server.scheme, server.netloc, f"/{self._bucket}", "", "")
        return S3Endpoint(url, SCOPE, "x-amz-security-token", server.scheme != "https")


def is_given(bucket: str, endpoint: str, key: str, secret: str) -> bool:
    """Whether nothing besides these values decides where the bucket is, and how requests are signed."""
    server = urlsplit(endpoint)
    is_plain = server.path in ("", "/") and not (server.query or server.fragment or "@" in server.netloc)
    is_amazon = (server.hostname or "").endswith(AMAZON)
    is_special = any(part in bucket for part in SPECIAL)
    if not (endpoint and key and secret and is_plain) or is_amazon or is_special:
        return False
    has_settings = any(name.startswith(PREFIXES) for name in {*os.environ} - HARMLESS)
    return not (has_settings or any(Path(file).expanduser().exists() for file in FILES))
