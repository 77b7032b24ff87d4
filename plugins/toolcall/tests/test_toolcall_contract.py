"""The plugin keeps the contract: the conformance kit's nine groups."""

from collections.abc import Callable

import pytest


def test_conformance(claw_conformance: Callable[..., None]) -> None:
    claw_conformance("toolcall")


@pytest.mark.usefixtures("needs_docker")
def test_conformance_with_the_interpreter(claw_conformance: Callable[..., None]) -> None:
    claw_conformance("toolcall", {"tools": ["python"], "gym": "gcd", "gym_settings": {}})
