"""The server's description in OpenAPI 3.1, built on demand."""
