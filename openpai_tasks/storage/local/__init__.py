"""Files on this machine, and storages mounted on it."""
