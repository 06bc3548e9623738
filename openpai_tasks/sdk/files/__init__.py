"""Files on storages, storages of users, and jobs' folders."""
