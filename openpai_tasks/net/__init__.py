"""Rules for every exchange with a server: addresses, time and size limits, retries."""
