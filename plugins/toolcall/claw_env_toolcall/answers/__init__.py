"""Answers: found in a reply, and compared with the right one."""
