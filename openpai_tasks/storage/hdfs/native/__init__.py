"""Hadoop's own protocol: name node calls and data node blocks."""
