"""How the fuzz targets run: each takes `tried`, which feeds it inputs and counts them.

Every target runs twice: short, the same inputs each time, in any test run; and long (`nightly`, so
only `make fuzz` and `make test-all`), CLAW_FUZZ times as many (60 where it is not set), other ones
each time.
"""

import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # so that targets can `import some_json`

HANGS_S = 10.0
"""processor seconds of one input after which it counts as a hang"""
INPUTS = "fuzz inputs"


class Tried:
    """Feeds a target."""

    def __init__(self, is_long: bool) -> None:
        self._is_long, self.count = is_long, 0

    def __call__(
        self, check: Callable[[Any], None], make: Callable[[Random], Any], few: int
    ) -> None:
        """Call `check` with `few` inputs, or many times as many; what it raises fails."""
        number = few * int(os.environ.get("CLAW_FUZZ", "60")) if self._is_long else few

        @settings(
            max_examples=number, derandomize=not self._is_long, database=None, deadline=None,
            suppress_health_check=list(HealthCheck), phases=[Phase.generate],
        )
        @given(st.integers(0, 2**64 - 1))
        def once(seed: int) -> None:
            self.count += 1
            value = make(Random(seed))
            began = time.process_time()
            try:
                check(value)
            except BaseException as error:
                with contextlib.suppress(RecursionError):
                    error.add_note(f"the input was {value!r}"[:4000])
                raise
            took = time.process_time() - began
            assert took < HANGS_S, f"{took:.1f} processor seconds for one input"

        once()


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
