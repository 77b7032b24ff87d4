"""Two loops: the actor (no torch) and the trainer (torch), joined by sockets only."""
