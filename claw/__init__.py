"""claw trains LLM agents from what happens after they act, while they keep serving."""

__version__ = "0.1.0"
