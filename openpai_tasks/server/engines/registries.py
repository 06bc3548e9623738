"""Names of images and registries, and credentials for registries."""

from __future__ import annotations

import base64
import json

from openpai_tasks.protocol import JobDocument
from openpai_tasks.protocol.document import references, template
from openpai_tasks.server.engines.base import RegistryLogin

HUB = "docker.io"
_HUB_NAMES = ("", HUB, "index.docker.io", "registry-1.docker.io", "hub.docker.com", "registry.hub.docker.com")
_HUB_KEY = "https://index.docker.io/v1/"  # the name of Docker Hub in docker's file


def login(document: JobDocument, role: str) -> RegistryLogin | None:
    """Return the document's credentials for the image of a role, with secrets."""
    name = dict(references.roles(document.data))[role].get("dockerImage")
    auth = references.prerequisite(document.data, "dockerimage", name).get("auth") or {}
    given = {
        key: template.render(value, {"$secrets": document.secrets})
        for key, value in auth.items()
        if isinstance(value, str)
    }
    if not given.get("username"):
        return None
    return RegistryLogin(given["username"], given.get("password", ""), given.get("registryuri", ""))


def full_name(image: str) -> str:
    """Return the image's full name as docker completes it; podman does not."""
    first, slash, rest = image.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return image if first not in _HUB_NAMES else f"{HUB}/{rest if '/' in rest else f'library/{rest}'}"
    return f"{HUB}/{image if slash else f'library/{image}'}"


def config(known: RegistryLogin) -> str:
    """Return the credentials in the format of docker's ``config.json``, which podman also reads."""
    host = known.registry.strip().removeprefix("https://").removeprefix("http://").split("/")[0].lower()
    key = _HUB_KEY if host in _HUB_NAMES else host
    secret = base64.b64encode(f"{known.user}:{known.password}".encode()).decode()
    return json.dumps({"auths": {key: {"auth": secret}}})
