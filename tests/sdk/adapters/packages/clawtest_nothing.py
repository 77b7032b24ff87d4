"""Neither v1 nor v0."""
