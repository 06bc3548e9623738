"""One module per resource of the REST API; each handler is ``(context, request) -> (status, body)``."""
