"""The actor: requests become turns, turns become samples. Imports no torch."""
