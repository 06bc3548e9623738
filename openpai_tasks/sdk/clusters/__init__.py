"""Clusters: add, sign in, describe; and the embedded one."""
