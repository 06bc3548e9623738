"""What the program `pai` adds to the tasks: flat commands, those of older clients, and the front page."""
