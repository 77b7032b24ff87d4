"""Which version an export takes."""

from pathlib import Path

import pytest

from claw.engine.export import _pick
from claw.errors import UsageError
from claw.records import Version, VersionStatus


def a_version(folder: Path, number: int, status: VersionStatus) -> Version:
    path = folder / str(number)
    path.mkdir()
    return Version("default", "default", number, number - 1, "", status, "lora", str(path))


@pytest.fixture
def known(tmp_path: Path) -> list[Version]:
    states = (VersionStatus.PUBLISHED, VersionStatus.ROLLED_BACK, VersionStatus.REFUSED)
    return [a_version(tmp_path, n, state) for n, state in enumerate(states)]


def test_without_a_number_it_is_the_newest_good_one(known: list[Version]) -> None:
    assert _pick(known, -1).number == 0


def test_a_version_that_was_rolled_back_can_be_asked_for_by_number(known: list[Version]) -> None:
    assert _pick(known, 1).number == 1


@pytest.mark.parametrize("number", [2, 9])
def test_a_refused_or_unknown_version_is_not_exported(known: list[Version], number: int) -> None:
    with pytest.raises(UsageError, match="v0"):
        _pick(known, number)
