"""Ready judges: each reads one turn and what followed it."""
