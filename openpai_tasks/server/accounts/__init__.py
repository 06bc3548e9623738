"""Who may use the embedded cluster: users, groups, tokens."""
