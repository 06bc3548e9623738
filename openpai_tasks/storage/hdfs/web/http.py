"""Answers of WebHDFS."""

from __future__ import annotations

from typing import Any

from requests.exceptions import ConnectionError as Broken  # makes PyHDFS ask another node

from openpai_tasks.errors import PathError
from openpai_tasks.net.http1 import HttpReply
from openpai_tasks.protocol.json_text import parse

ERROR_FIELDS = {"exception", "javaClassName", "message"}


class NoJson(PathError):
    """Raised for an answer that should have been JSON."""


class Reply(HttpReply):
    """An answer with the attributes of a ``requests.Response`` that PyHDFS uses."""

    broken = Broken

    @property
    def raw(self) -> Reply:
        return self

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """Return the answer's JSON; an empty success (a rename with options) counts as true."""
        if self.status_code == 200 and not self.content:
            return {"boolean": True}
        try:
            return parse(self.content)
        except ValueError as err:
            raise NoJson(f"{self._connection.key[1]} did not answer with JSON; is it WebHDFS?") from err


def explains(reply: Reply) -> bool:
    """Whether an error answer has the body that HDFS gives its errors."""
    try:
        error = parse(reply.content)["RemoteException"]
        are_texts = all(isinstance(one, str) for one in error.values())
        return are_texts and {"exception", "message"} <= error.keys() <= ERROR_FIELDS
    except (ValueError, LookupError, TypeError, AttributeError):
        return False
