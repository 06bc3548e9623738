"""Files on any storage: the store interface, locations, and one folder for each kind of storage."""
