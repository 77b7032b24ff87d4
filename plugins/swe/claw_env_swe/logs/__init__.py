"""What tests said in their logs: test -> status, one parser for each framework.

Owns: the table of parsers, the four statuses, and the rule for a test that is named twice.
Does not own: which tests matter (`grade`).
"""

import re
from collections.abc import Callable, Iterable

from .others import cargo, go, jest
from .python import django, pytest, unittest
from .report import junit

Found = Iterable[tuple[str, str]]
PARSERS: dict[str, Callable[[str], Found]] = {
    "pytest": pytest, "unittest": unittest, "django": django, "go": go, "jest": jest,
    "cargo": cargo, "junit": junit,
}
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_RANK = ("passed", "skipped", "failed", "error")
"""a test that is named twice has the worse status: a forged line cannot mend a failure"""


def parse(framework: str, text: str) -> dict[str, str]:
    """Return test -> passed, skipped, failed or error."""
    plain = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    made: dict[str, str] = {}
    for name, status in PARSERS[framework](plain):
        before = made.get(name)
        if before is None or _RANK.index(status) > _RANK.index(before):
            made[name] = status
    return made
