"""The addresses of OpenPAI's web pages, which other tools link to: they lead to the portal."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode

from starlette.responses import Response

from openpai_tasks.errors import ApiError, PaiError
from openpai_tasks.portal import starting
from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.formats.profiles import UNION
from openpai_tasks.server.api.request import Reply
from openpai_tasks.server.variables import CLEANED

PAGES = ("/", "/job-list.html", "/job-detail.html", "/submit.html")
ALIAS = "local"


def redirect_to_portal(context: Context, path: str, query: str, headers: Mapping[str, str]) -> Reply | None:
    """Redirect a browser to the portal, started if needed; None for other calls.

    The emulated versions answer as they do; a server in another folder is not the cluster that portals show.
    """
    is_page = headers.get("sec-fetch-dest", "document") == "document"
    if path not in PAGES or not is_page or "text/html" not in headers.get("accept", ""):
        return None
    own = context.state.folder.parent
    if context.profile.name != UNION or own.name != ALIAS:
        return None
    try:
        rest = {name: value for name, value in os.environ.items() if name != CLEANED}
        uri = starting.any_portal(own.parent, rest)
    except PaiError as err:
        raise ApiError(str(err), 503) from err
    values = [*parse_qsl(query), ("cluster", ALIAS)]
    target = f"{uri}{path}?{urlencode(values)}"
    return Response("", 302, {"location": target, "cache-control": "no-store"}, "text/plain")
