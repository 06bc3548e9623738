"""An Azure account and its credentials."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import adlfs  # type: ignore[import-untyped]

from openpai_tasks.errors import ConfigError
from openpai_tasks.lazy_dataclass import dataclass

CLOUD = "blob.core.windows.net"


@dataclass(frozen=True)
class Account:
    """An account and its credentials; for a URL without a key, this machine's login to Azure."""

    name: str = ""
    endpoint: str = ""
    key: str = field(default="", repr=False)
    sas: str = field(default="", repr=False)
    connection: str = field(default="", repr=False)

    @property
    def url(self) -> str:
        endpoint = dict(row.partition("=")[::2] for row in self.connection.split(";")).get("BlobEndpoint", "")
        return self.endpoint or endpoint or f"https://{self.name}.{CLOUD}"

    def connected(self) -> Any:
        connection = self.connection
        if self.key:
            connection = f"BlobEndpoint={self.url};AccountName={self.name};AccountKey={self.key}"
        elif self.sas:
            connection = f"BlobEndpoint={self.url};SharedAccessSignature={self.sas.lstrip('?')}"
        options: dict[str, Any] = {"account_name": self.name, "account_host": self.url.partition("://")[2]}
        if connection:
            options = {"connection_string": connection}
        try:
            return adlfs.AzureBlobFileSystem(**options, skip_instance_cache=True, use_listings_cache=False)
        except ValueError as err:
            raise ConfigError(
                f"the account {self.name!r} of Azure Blob: invalid key or connection string"
            ) from err
