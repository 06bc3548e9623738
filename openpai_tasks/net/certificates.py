"""Certificates that a client presents to servers which ask for one (mutual TLS)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    import ssl


class EncryptedKey(Exception):
    """Raised when OpenSSL would ask for the passphrase of a key."""


class ClientCertificate(NamedTuple):
    """The paths of a certificate and its private key, in PEM form; one file may hold both."""

    certificate: str
    key: str

    @property
    def changed(self) -> tuple[int, ...]:
        """When the files were changed last, so that a renewed certificate is used."""
        return tuple(os.stat(path).st_mtime_ns if os.path.exists(path) else 0 for path in self)

    @property
    def is_exposed(self) -> bool:
        """Whether other users can read the key."""
        return bool(os.stat(self.key).st_mode & 0o077)

    def load(self, context: ssl.SSLContext) -> None:
        """Present the certificate on connections of the context; raise OSError with the reason on failure."""
        import ssl

        for path in self:
            try:
                open(path, "rb").close()
            except OSError as err:
                raise OSError(f"cannot read {path}: {err.strerror}") from err
        try:
            context.load_cert_chain(self.certificate, self.key, _refuse_to_ask)
        except EncryptedKey:
            decrypt = f"openssl pkey -in {self.key} -out NEW"
            raise OSError(
                f"the key {self.key} is encrypted; `{decrypt}` writes it without a passphrase"
            ) from None
        except ssl.SSLError as err:
            if err.reason == "KEY_VALUES_MISMATCH":
                raise OSError(f"the key {self.key} does not belong to {self.certificate}") from err
            what = (
                f"{self.certificate} and {self.key} are not" if len(set(self)) > 1 else f"{self.key} is not"
            )
            raise OSError(f"{what} a certificate and its private key in PEM form") from err


def _refuse_to_ask() -> NoReturn:
    raise EncryptedKey
