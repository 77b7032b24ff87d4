"""pytest's "short test summary info", as terminal-bench reads it.

Owns: which tests passed, from the text on a terminal.
Does not own: running them.
"""

import re

from claw.sdk.formats.reward import Counts

_SECTION = re.compile(r"=+ short test summary info =+\s*$", re.MULTILINE)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_LINE = re.compile(r"^([A-Z]+)\s+(\S.*)$")
PASSED = ("PASSED", "XFAIL", "SKIPPED")
KNOWN = (*PASSED, "FAILED", "XPASS", "ERROR")


def read(text: str) -> Counts | None:
    """Return the counts of the last summary; None without one, or with an empty one."""
    plain = _ESCAPES.sub("", text).replace("\r", "")
    sections = list(_SECTION.finditer(plain))
    if not sections:
        return None
    status: dict[str, str] = {}
    for line in plain[sections[-1].end() :].splitlines():
        if match := _LINE.match(line.strip()):
            word, rest = match.groups()
            if word in KNOWN:
                status[_name(word, rest)] = word
    if not status:
        return None
    failed = [name for name, word in status.items() if word not in PASSED]
    return Counts(len(status) - len(failed), len(status), tuple(failed[:20]))


def _name(word: str, rest: str) -> str:
    """A failed test's line ends with its reason."""
    cut = rest.rpartition(" - ")[0] if word == "FAILED" and " - " in rest else rest
    return cut.strip().split("::", 1)[-1][:300]
