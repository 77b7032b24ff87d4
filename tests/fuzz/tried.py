"""Feeds a fuzz target its inputs, and counts them."""

import contextlib
import os
import time
from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

HANGS_S = 10.0
"""processor seconds of one input after which it counts as a hang"""


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
