"""Readers and writers of other projects' task formats. None of them imports docker or torch."""
