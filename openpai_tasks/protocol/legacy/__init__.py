"""Job configurations of OpenPAI 0.14 (v1), and their conversion to v2."""
