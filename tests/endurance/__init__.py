"""Endurance: random, repeatable histories of operations and faults, checked from what really happened.

``inv endure`` runs them. `plan` makes a history from a seed, `world` carries it out with real processes,
`checks` compares what was recorded with what is promised, and `shrink` cuts a failing history down.
A module in `operations`, `faults` or `sites` adds to what a history can have.
"""
