"""SGLang's Python environment: whether it is there, what is in it, and how to make it.

Owns: asking another python what it holds. Does not own: starting workers.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from claw import __version__
from claw.engine.worker.sglang import PLUGINS, SHIM, VERSION

USUAL = Path(".venv-sglang/bin/python")
"""where tools/install_sglang.sh makes it"""
MAKE = "make sglang"
PATIENCE_S = 60.0
PACKAGES = ("sglang", "torch", "transformers", "claw-rl", "pyzmq", "msgpack", "safetensors")
_ASK = f"""
import importlib.metadata as m, json
def version(name):
    try: return m.version(name)
    except m.PackageNotFoundError: return None
found = {{name: version(name) for name in {PACKAGES!r}}}
found["plugin"] = {SHIM!r} in m.entry_points(group={PLUGINS!r}).names
print(json.dumps(found))
"""


def lines(python: str) -> Iterator[str]:
    """Yield the lines of `claw doctor` on the environment of `sglang.python`."""
    chosen = python or (str(USUAL) if USUAL.exists() else sys.executable)
    found, why = ask(chosen)
    if found is None:
        yield f"sglang        no answer from {chosen}: {why}; make it: {MAKE}"
        return
    if found["sglang"] is None:
        yield f"sglang        not installed in {chosen}; make its environment: {MAKE}"
        return
    yield f"sglang        {found['sglang']} in {chosen}{_verdict(found)}"
    others = ", ".join(f"{n} {found[n] or 'missing'}" for n in PACKAGES[1:])
    yield f"  beside it   {others}; plugin for CPUs: {'yes' if found['plugin'] else 'no'}"
    if chosen != python:
        yield f"  to use it   worker.kind=sglang sglang.python={Path(chosen).absolute()}"


def _verdict(found: dict[str, str | None]) -> str:
    if found["sglang"] != VERSION:
        return f": claw serves with {VERSION} only; make its environment anew: {MAKE}"
    if found["claw-rl"] != __version__:
        return f": its claw is {found['claw-rl'] or 'missing'}, this one {__version__}; {MAKE}"
    missing = [name for name in PACKAGES if found[name] is None]
    return f": {', '.join(missing)} missing; {MAKE}" if missing else ": as it should be"


def ask(python: str) -> tuple[dict[str, str | None] | None, str]:
    """Return (versions, "") as that python knows them, or (None, why not)."""
    try:
        done = subprocess.run([python, "-c", _ASK], capture_output=True, text=True,
                              timeout=PATIENCE_S, check=False)
        return json.loads(done.stdout), ""
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    except ValueError:
        return None, (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
