"""The tests."""

import os
import sys

# Thousands of processes load the same modules: each of them should find the compiled ones.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# jsonschema would load a grammar of IRIs, which takes 2 s and which no schema here needs.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
