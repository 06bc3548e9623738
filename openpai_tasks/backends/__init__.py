"""The kinds of clusters, one folder each, behind the protocol in base.py and the table in kinds.py."""
