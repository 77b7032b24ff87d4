"""Tasks: where they come from, and what is known of their answers."""
