"""`python -m claw.engine.runner --spec FILE.json`: {config, actor, run_dir, api_key_file, ready}.

The key is read from a file that only its owner can read, never from the command line.
"""

import stat
import sys
from pathlib import Path

from claw import config
from claw.engine import process
from claw.engine.runner.host import run
from claw.errors import UsageError


def start(spec: process.Spec) -> None:
    run(
        config.parse(spec["config"]), actor=spec["actor"], run_dir=Path(spec["run_dir"]),
        api_key=_key(spec.get("api_key_file")),
        ready=Path(spec["ready"]) if spec.get("ready") else None,
        trace_hooks=bool(spec.get("trace_hooks")),
    )


def _key(name: str | None) -> str:
    if not name:
        return ""
    path = Path(name)
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise UsageError("the key file is readable by others", found=name, do=f"chmod 600 {name}")
    return path.read_text(encoding="utf-8").strip()


def main(arguments: list[str] | None = None) -> int:
    return process.main("runner", start, arguments)


if __name__ == "__main__":
    sys.exit(main())
