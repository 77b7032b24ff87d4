"""Runs in the sandbox, alone: the standard library only. Checks -> reward.txt and ctrf.json.

Owns: exact comparison of what is there with what should be.
Does not own: which checks a task has (checks.json beside it).

The reward is 1 when every check passes, else 0; the report holds each check. What the agent wrote
is data here: its programs run as the agent's user, with a deadline, and nothing of it is imported.
"""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

LOGS = Path("/logs/verifier")
AGENT = 1000
MAX_BYTES = 4 << 20
RUN_S = 10


def text(path):
    """The file's text; devices, pipes and huge files are no answer."""
    about = os.stat(path)
    if not stat.S_ISREG(about.st_mode) or about.st_size > MAX_BYTES:
        raise ValueError(f"{path} is no plain file")
    return Path(path).read_text(encoding="utf-8")


def lines(value):
    return [line.rstrip() for line in value.strip("\n").splitlines()]


def tree(folder):
    """Relative path -> text of every file below."""
    found = {}
    for base, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(base, name)
            found[os.path.relpath(path, folder)] = text(path)
    return found


def is_text(c):
    return lines(text(c["path"])) == lines(c["text"])


def is_json(c):
    return json.loads(text(c["path"])) == c["value"]


def is_tree(c):
    return tree(c["path"]) == c["files"]


def is_mode(c):
    return stat.S_IMODE(os.lstat(c["path"]).st_mode) == int(c["mode"], 8)


def is_link(c):
    return os.path.islink(c["path"]) and os.path.realpath(c["path"]) == c["target"]


def is_folder(c):
    return os.path.isdir(c["path"]) and not os.path.islink(c["path"])


def is_printed(c):
    """The agent's program, run as the agent, prints what it should."""
    who = {"user": AGENT, "group": AGENT, "extra_groups": []} if os.getuid() == 0 else {}
    done = subprocess.run(
        c["argv"], input=c.get("stdin", ""), capture_output=True, timeout=RUN_S, cwd=c["cwd"],
        encoding="utf-8", errors="replace", start_new_session=True, **who,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"},
    )
    return done.returncode == c.get("code", 0) and lines(done.stdout) == lines(c["stdout"])


KINDS = {"text": is_text, "json": is_json, "tree": is_tree, "mode": is_mode, "link": is_link,
         "folder": is_folder, "printed": is_printed}


def status(check):
    try:
        return "passed" if KINDS[check["kind"]](check) else "failed"
    except (OSError, ValueError, subprocess.SubprocessError, RecursionError):
        return "failed"


def report(results):
    """Write the report first and the reward last: a reward means that the report is whole."""
    tests = [{"name": name, "status": found, "duration": 0} for name, found in results]
    passed = sum(found == "passed" for _, found in results)
    summary = {"tests": len(tests), "passed": passed, "failed": len(tests) - passed, "pending": 0,
               "skipped": 0, "other": 0, "start": 0, "stop": 0}
    ctrf = {"results": {"tool": {"name": "claw-check"}, "summary": summary, "tests": tests}}
    (LOGS / "ctrf.json").write_text(json.dumps(ctrf))
    (LOGS / "reward.txt").write_text(f"{int(passed == len(tests))}\n")
    for name, found in results:
        print(found, name)


if __name__ == "__main__":
    checks = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    report([(check["name"], status(check)) for check in checks])
