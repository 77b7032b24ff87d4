"""Programs that run inside a sandbox, never here: they are sent there as text."""
