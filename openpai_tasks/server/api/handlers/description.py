"""The server's description of itself."""

from __future__ import annotations

from openpai_tasks.server.api.context import Context
from openpai_tasks.server.api.request import Reply, Request


def get_description(context: Context, request: Request) -> Reply:
    """What this server answers at which path, in OpenAPI; it is built when first asked for."""
    from openpai_tasks.server.api.openapi.build import describe

    return 200, describe(context.profile.name)
