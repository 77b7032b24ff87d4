"""`claw plugin new NAME`: a working plugin, written from templates that lie in `files/`."""
