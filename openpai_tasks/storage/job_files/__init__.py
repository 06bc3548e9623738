"""Files of a job: which ones are sent, how they are archived, and the workspace that stores them."""
