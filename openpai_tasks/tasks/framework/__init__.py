"""What tasks are made with: decorator, parser, terminal, prompts, and patches of Invoke."""
