"""Running containers: shells, commands, files, ports."""
