"""YAML as the real server's JavaScript reads and writes it."""
