"""Shell tasks without end: each from a seed, each with an exact checker and its solution."""

from .recipe import Recipe, check, make

__all__ = ["Recipe", "check", "make"]
