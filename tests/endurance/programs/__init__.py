"""Programs that histories run as clients."""
