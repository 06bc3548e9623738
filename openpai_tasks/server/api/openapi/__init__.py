"""The OpenAPI 3.1 description of the server, built on demand."""
