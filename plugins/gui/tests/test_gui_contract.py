"""The plugin keeps the contract: the conformance kit's nine groups, on real desktops."""

from collections.abc import Callable

import pytest


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.docker
@pytest.mark.usefixtures("needs_desktop")
def test_conformance(claw_conformance: Callable[..., None]) -> None:
    claw_conformance("gui", {"settle_s": 0.5}, max_tasks=1)
