"""Any machine with ssh: our own server there, which speaks OpenPAI's API, reached through the user's ssh."""
