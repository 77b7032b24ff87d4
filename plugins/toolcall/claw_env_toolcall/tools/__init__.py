"""Tools: what they are, where they come from, and how calls of them run."""
