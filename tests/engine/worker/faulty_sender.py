"""A sender that does one thing wrong, named in the file $CLAW_SENDER.

    lack NAME      one tensor is not offered
    zero NAME      one tensor is sent as zeros
    die WHEN       it is killed: `joining`, or in the bucket of this number
    freeze WHEN    it stops moving then
"""

import os
import signal
from pathlib import Path

from claw.engine.trainer import sender


def fault() -> list[str]:
    file = Path(os.environ["CLAW_SENDER"])
    return file.read_text().split() if file.exists() else ["none", ""]


class FaultySender(sender.Sender):
    """See `sender.Sender`."""

    def read(self):
        found = super().read()
        what, name = fault()
        if what == "lack":
            del found[name]
        if what == "zero":
            found[name] = found[name] * 0
        return found

    def say(self, type, **fields):
        super().say(type, **fields)
        what, when = fault()
        now = {"broadcast.ready": "joining", "broadcast.sending": str(fields.get("index"))}[type]
        if what in ("die", "freeze") and when == now:
            context = self.link.context
            self.link.close(linger=-1)
            context.term()  # once what was said is out of this process
            os.kill(os.getpid(), signal.SIGKILL if what == "die" else signal.SIGSTOP)


if __name__ == "__main__":
    sender.main(FaultySender)
