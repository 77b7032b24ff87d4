"""The plugin keeps the contract: the conformance kit's nine groups."""

from collections.abc import Callable

import pytest


@pytest.mark.usefixtures("needs_docker", "pins")
@pytest.mark.slow
@pytest.mark.nightly
def test_conformance(claw_conformance: Callable[..., None]) -> None:
    two = ["parse__short-fractions", "parse__hyphenated-fields"]
    claw_conformance("swe", {"only": two, "gold_runs": 1})
