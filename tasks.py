"""This project's tasks: everything that openpai_tasks brings."""

from openpai_tasks.tasks import namespace

ns = namespace()
