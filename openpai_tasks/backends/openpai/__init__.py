"""OpenPAI clusters of any generation, over HTTP."""

from openpai_tasks.backends.openpai.endpoints import Client as Client
