"""HTTP connections to clusters, shared by the kinds of clusters: tokens, retries, limits and error lines."""
