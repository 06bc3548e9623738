"""Object storage as folders and files."""
