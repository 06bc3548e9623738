"""One folder for each kind of cluster; nothing above knows how a cluster is spoken to."""
