"""The tools of a software agent: those of every shell, and mini-swe-agent's way to submit.

Owns: noticing a submission. Does not own: the tools themselves (claw.sdk.shell).
"""

from claw.sdk.shell.tools import Result, Tools

from . import work


class SweTools(Tools):
    """A command whose first line of output is the marker ends the episode."""

    submission: str | None = None
    """what was submitted: a patch, or nothing but the state of the repository"""

    def command(self, command: str, timeout_s: float = 0.0) -> Result:
        """Run a command; see `Tools.command`."""
        limit = timeout_s or self.timeout_s
        done = self.shell.run(command, timeout_s=limit, max_output=self.max_output)
        self.submission = work.submitted(done.text, exit_code=done.exit_code)
        if self.submission is not None:
            return Result("submitted", "finish", done.exit_code)
        return self.told(done, limit)
