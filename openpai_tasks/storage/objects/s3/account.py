"""The server, region and credentials of a bucket, as botocore finds them in the usual AWS settings."""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from botocore.awsrequest import AWSResponse  # type: ignore[import-untyped]
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.credentials import RefreshableCredentials  # type: ignore[import-untyped]
from botocore.exceptions import (  # type: ignore[import-untyped]
    BotoCoreError,
    NoCredentialsError,
    PartialCredentialsError,
)
from botocore.httpsession import get_cert_path  # type: ignore[import-untyped]
from botocore.loaders import create_loader  # type: ignore[import-untyped]
from botocore.session import Session  # type: ignore[import-untyped]

from openpai_tasks.errors import ConfigError
from openpai_tasks.storage.objects.s3.signing import S3Endpoint, SigningScope

SETTINGS = {"connect_timeout": 10, "read_timeout": 60, "retries": {"max_attempts": 0}}
SESSION_TOKEN = "x-amz-s3session-token"
RENEW = 60  # seconds before a session of S3 Express ends; it lasts five minutes


class S3Account:
    """A bucket's endpoint and credentials, which may be renewed at any time."""

    def __init__(self, bucket: str, endpoint: str, key: str, secret: str, token: str) -> None:
        self._bucket, self._endpoint = bucket, endpoint or None
        try:
            self._session = Session()
            data_path = self._session.get_config_variable("data_path")
            self._session.register_component("data_loader", _shared_loader(data_path))
            if key:
                self._session.set_credentials(key, secret, token or None)
            self._credentials = self._session.get_credentials()
            if self._credentials is None:
                raise NoCredentialsError
            bundle = self._session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
        except (NoCredentialsError, PartialCredentialsError) as err:
            raise ConfigError(
                f"s3://{bucket}: no credentials for S3; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
                "or a profile with AWS_PROFILE"
            ) from err
        except (BotoCoreError, ValueError) as err:  # such as a missing profile
            raise self._invalid(err) from err
        self.certificates: str = bundle or get_cert_path(True)

    def login(self) -> Any:
        """Return access_key, secret_key and token for the next request."""
        return self._credentials.get_frozen_credentials()

    def locate(self, region: str | None) -> S3Endpoint:
        """Return the endpoint in the region: let botocore prepare a request, and do not send it."""
        try:
            client = self._session.create_client(
                "s3", region_name=region, endpoint_url=self._endpoint, config=Config(**SETTINGS)
            )
        except (BotoCoreError, ValueError) as err:
            raise self._invalid(err) from err
        prepared: list[Any] = []

        def intercept(request: Any, **_: Any) -> AWSResponse:
            prepared.append(request)
            return AWSResponse(request.url, 200, {}, _NoBody())

        client.meta.events.register("before-send.s3.HeadObject", intercept)
        client.head_object(Bucket=self._bucket, Key="-")
        url, headers = prepared[0].url, prepared[0].headers
        names = _text(headers["Authorization"]).partition("Credential=")[2].partition(",")[0].split("/")
        is_express = SESSION_TOKEN in headers
        if is_express:
            self._credentials = self._session_credentials(client)
        signs_payload = (client.meta.config.s3 or {}).get("payload_signing_enabled")
        return S3Endpoint(
            urlsplit(url.removesuffix("/-")),
            SigningScope(names[-3], names[-2]),
            SESSION_TOKEN if is_express else "x-amz-security-token",
            not url.startswith("https") if signs_payload is None else bool(signs_payload),
        )

    def _invalid(self, err: Exception) -> ConfigError:
        return ConfigError(f"s3://{self._bucket}: invalid AWS settings: {err}")

    def _session_credentials(self, client: Any) -> RefreshableCredentials:
        """Return the credentials of a session, which S3 Express needs; they are renewed in time."""

        def renew() -> dict[str, str]:
            found = client.create_session(Bucket=self._bucket)["Credentials"]
            return {
                "access_key": found["AccessKeyId"],
                "secret_key": found["SecretAccessKey"],
                "token": found["SessionToken"],
                "expiry_time": found["Expiration"].isoformat(),
            }

        times = {"advisory_timeout": 2 * RENEW, "mandatory_timeout": RENEW}
        return RefreshableCredentials.create_from_metadata(renew(), renew, "s3express", **times)


@functools.cache
def _shared_loader(data_path: str | None) -> Any:
    """A loader for all sessions: each would parse the descriptions of AWS for itself, for 0.1 s."""
    return create_loader(data_path)


class _NoBody(io.BytesIO):
    def stream(self, **_: Any) -> Iterator[bytes]:
        return iter(())


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
