"""The same tasks for Fabric: `fab --list`, `fab container.ssh JOB`."""

from tasks import ns

__all__ = ["ns"]
