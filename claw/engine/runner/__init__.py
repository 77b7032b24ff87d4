"""Runner processes host plugin code: environments and the HTTP apps of plugins."""
