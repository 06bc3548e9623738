"""Names of settings that older clients knew."""

from __future__ import annotations

_PANEL = "the notebook panel that it belongs to is replaced by `%pai` and the portal"
_SDK_BRANCH = "jobs run without the SDK in their container"
OLD_NAMES = {
    "container-sdk-branch": _SDK_BRANCH,
    "sdk-branch": _SDK_BRANCH,
    "mem": "`--mem` sets the memory of a job",
    "storage-alias": "a storage is chosen by its name",
    **dict.fromkeys(("image-list", "resource-list"), _PANEL),
    **dict.fromkeys(("web-default-form", "web-default-image", "web-default-resource"), _PANEL),
}
"""Settings of older clients that have no use here, and why."""
