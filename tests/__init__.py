"""The tests."""

import os
import sys

# Thousands of processes load the same modules: each of them should find the compiled ones.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
