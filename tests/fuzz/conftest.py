"""How the fuzz targets run: each takes `tried`, which feeds it inputs and counts them.

Every target runs twice: short, the same inputs each time, in any test run; and long (`nightly`, so
only `make fuzz` and `make test-all`), CLAW_FUZZ times as many (60 where it is not set), other ones
each time.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # so that targets can `import some_json`

from tried import Tried

INPUTS = "fuzz inputs"


@pytest.fixture(params=[
    "short",
    pytest.param("long", marks=[pytest.mark.slow, pytest.mark.nightly, pytest.mark.timeout(3600)]),
])
def tried(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> Iterator[Tried]:
    made = Tried(request.param == "long")
    yield made
    record_property(INPUTS, made.count)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    tried: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == INPUTS and report.when == "teardown":
                    tried[report.nodeid] += value
    for target, number in sorted(tried.items()):
        terminalreporter.write_line(f"{number:9,} inputs  {target}")
    if tried:
        terminalreporter.write_line(
            f"{tried.total():9,} inputs over {len(tried)} targets")
