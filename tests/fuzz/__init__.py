"""Fuzzing of every parser that reads foreign bytes.

``inv fuzz`` runs the targets in ``targets/``, guided by coverage where atheris is installed. `limits` says
what an input must not do, `mutations` changes inputs, and `corpus/` has the inputs that once did it.
"""
