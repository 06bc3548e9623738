"""Malformed responses: a real response with something wrong in it is read, or ends in one of our errors."""
