"""Simulated people: what they ask, what they want, how they correct; and what must not be lost."""
