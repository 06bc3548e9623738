"""Hadoop's native protocol: name node calls and data node blocks."""
