"""PaddleCloud datacenters, over HTTP."""

from __future__ import annotations

from openpai_tasks.backends.paddlecloud.client import PaddleClient

__all__ = ["PaddleClient"]
