"""Job templates and schemas for editors."""
