"""The REST API: requests in, answers out."""
