"""Jobs as processes of this machine."""

from tests.endurance.sites.base import Site


class Process(Site):
    kind = "process"
