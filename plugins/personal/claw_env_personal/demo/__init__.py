"""The demo: a simulated person talks to a real small model until it has learned their taste."""
