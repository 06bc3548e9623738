"""What every conversation with a server is held to: addresses, time and size limits, retries."""
