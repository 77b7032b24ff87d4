"""The pytest plugin that comes with claw-rl: the fixture `claw_conformance`.

    def test_conformance(claw_conformance):
        claw_conformance("my-env", {"tasks": 3})

becomes nine tests, one a group of checks; a failing one names plugin, task, what was expected and
what was found. Everything else is imported when the fixture is used.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from claw.sdk.testing.groups import GROUPS

if TYPE_CHECKING:
    from claw.sdk.testing.criteria import Report

Conformance = Callable[..., "Report"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "claw_conformance" in metafunc.fixturenames:
        metafunc.parametrize("claw_conformance", GROUPS, indirect=True)


@pytest.fixture
def claw_conformance(request: pytest.FixtureRequest) -> Conformance:
    """Check one group of a plugin; fails with every broken criterion, and returns the report."""
    group: str = request.param

    def conformance(plugin: Any, settings: dict[str, Any] | None = None, **more: Any) -> "Report":
        from claw.sdk.testing.kit import check

        report = check(plugin, settings, groups=[group], **more)
        if not report.passed:
            lines = [line for criterion in report.broken() for line in criterion.lines()]
            pytest.fail("\n".join([f"plugin {report.plugin!r}:", *lines]), pytrace=False)
        return report

    return conformance
