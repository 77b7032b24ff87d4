"""OSWorld's task JSON: read fully, set up, evaluated by its rules."""
