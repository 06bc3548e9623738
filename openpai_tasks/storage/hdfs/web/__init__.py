"""WebHDFS: name nodes, data nodes, and the HTTP connections to both."""
