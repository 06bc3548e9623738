"""What commands show while they run, and the flags they share."""
