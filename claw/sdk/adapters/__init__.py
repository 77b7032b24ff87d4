"""Built-in plugins that play other people's environments: one folder per ecosystem."""
