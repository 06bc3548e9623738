"""Files of this machine, and storages mounted on it."""
