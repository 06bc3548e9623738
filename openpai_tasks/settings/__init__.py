"""Settings and their layers, known clusters, credentials, trusted folders, and the home folder."""
