"""The way to our server on a login node: OpenSSH's connection, and a socket that leads there."""
