"""A process of a run that does as its spec says: goes on, gets stuck, or forks and stands still."""

import subprocess
import sys
import threading
import time

from claw.engine import process, pulse


def start(spec: process.Spec) -> None:
    if spec["does"] == "stick":
        pulse.mark(pulse.WORK)
        threading.Event().wait()
    if spec["does"] == "load":
        time.sleep(3600)
    if spec["does"] == "fork":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)", spec["mark"]])
    while True:
        pulse.mark(pulse.WORK)
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(process.main("hanging", start))
