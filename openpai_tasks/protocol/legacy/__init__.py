"""Job configurations of OpenPAI 0.14 (v1), and their way to v2."""
