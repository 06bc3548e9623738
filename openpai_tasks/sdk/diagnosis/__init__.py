"""Why a job waits or failed, in plain words."""
