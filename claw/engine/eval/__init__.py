"""`claw eval`: a policy measured on a plugin's tasks."""
