"""Engines that run tasks: the interface in base.py, and one module for each engine."""
