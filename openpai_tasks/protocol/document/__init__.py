"""The v2 job document: its rules, its parts, and how it is built."""
