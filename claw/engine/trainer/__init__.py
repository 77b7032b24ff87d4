"""The trainer: samples become steps, steps become versions."""
