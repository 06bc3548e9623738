"""Kinds of clusters, a folder each, behind the protocol in base.py and the table in kinds.py."""
