"""A policy's shell in a sandbox: commands, files, programs on a screen, and how a policy asks."""
