"""Jobs, nodes and versions in the shapes of the three generations of OpenPAI."""
