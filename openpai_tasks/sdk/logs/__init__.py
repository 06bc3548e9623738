"""Jobs' output: read, followed, labelled."""
