"""Speed beside named peers: ``python -m benchmarks [TOPIC ...]``, or ``inv bench``."""
