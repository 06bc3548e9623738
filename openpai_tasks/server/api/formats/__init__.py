"""Jobs, nodes and versions in the formats of the three generations of OpenPAI."""
