"""What importing a plugin does, watched in a fresh Python: modules, network, time.

Owns: the child process and its report. Does not own: judging the report (`registering`).
"""

import json
import subprocess
import sys
from dataclasses import dataclass

from claw.errors import ClawError

HEAVY = ("torch", "transformers", "sglang", "docker")
DEADLINE_S = 120.0
CODE = """
import json, sys, time
import claw.sdk
calls = []
def hear(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        calls.append(f"{event} {arguments[1:] if event == 'socket.connect' else arguments}")
sys.addaudithook(hear)
began = time.process_time()
from importlib.metadata import entry_points
for point in entry_points(group="claw", name=sys.argv[1]):
    point.load()
seconds = time.process_time() - began
heavy = [name for name in sys.argv[2].split(",") if name in sys.modules]
print(json.dumps({"heavy": heavy, "network": calls, "seconds": seconds}))
"""


@dataclass(frozen=True, slots=True)
class Imported:
    """What was seen."""

    heavy: list[str]
    network: list[str]
    seconds: float
    """of processor time, over an SDK that is already imported"""


def imported(name: str) -> Imported:
    """Import the plugin of an entry point in a fresh Python."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, name, ",".join(HEAVY)],
        capture_output=True, text=True, timeout=DEADLINE_S,
    )
    if done.returncode:
        raise ClawError(f"plugin {name!r} cannot be imported", found=done.stderr[-1000:])
    return Imported(**json.loads(done.stdout.splitlines()[-1]))
