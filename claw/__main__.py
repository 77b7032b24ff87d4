"""`python -m claw` is the same as `claw`."""

from claw.cli import main

main()
