"""Processes of a run on other machines, where a cluster places them (Ray)."""
