"""The table of versions, as a status shows it."""

from pathlib import Path

from claw.engine.actor.journal import Journal
from claw.engine.actor.published import SHOWN, Published
from claw.records import Version, VersionStatus


def table(folder: Path) -> Published:
    made = Published(Journal(folder))
    for number in range(1, SHOWN + 21):
        status = VersionStatus.REFUSED if number % 4 == 0 else VersionStatus.PUBLISHED
        made.put(Version("default", "default", number, number - 1, "0" * 64, status=status))
    made.put(Version("anna", "default", 1, 0, "0" * 64, status=VersionStatus.PUBLISHED))
    return made


def test_a_status_holds_the_newest_versions_of_each_and_counts_all(tmp_path: Path) -> None:
    made = table(tmp_path)
    rows = made.rows()
    own = [row["number"] for row in rows if row["owner"] == "default"]
    assert own == list(range(21, SHOWN + 21))
    assert [row["owner"] for row in rows].count("anna") == 1
    assert made.states() == {"published": 91, "refused": 30}


def test_a_persons_status_holds_nobody_elses_versions(tmp_path: Path) -> None:
    assert [(row["owner"], row["number"]) for row in table(tmp_path).rows("anna")] == [("anna", 1)]
