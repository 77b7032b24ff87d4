"""Benchmarks: each prints a table with the machine and the settings; none is a test."""
