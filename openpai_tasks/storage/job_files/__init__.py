"""Files of a job: which go along, how they are archived, and the workspace they are kept in."""
