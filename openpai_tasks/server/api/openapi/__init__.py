"""The server's description of itself in OpenAPI 3.1, built when it is first asked for."""
