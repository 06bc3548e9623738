"""Samba and Azure File shares over SMB."""
