"""Kill and pause the portal."""

from tests.endurance.faults.processes import KillServer, PauseServer


class KillPortal(KillServer):
    kind, weight, target = "kill portal", 1, "portal"


class PausePortal(PauseServer):
    kind, weight, target = "pause portal", 1, "portal"
