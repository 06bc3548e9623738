"""Files of a running container over SFTP."""
