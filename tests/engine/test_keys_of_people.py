"""The people of a run: keys, what is kept of them, and who counts as whom."""

import json
import stat

import pytest
from typer.testing import CliRunner

from claw import config as settings
from claw.cli import app
from claw.engine.people import FILE, People
from claw.engine.rundir import RunDir
from claw.errors import UsageError
from claw.sdk import Person

RUN_KEY = "sk-claw-of-the-run"


def test_a_key_opens_for_its_person_and_for_nobody_else(tmp_path):
    people = People(tmp_path, RUN_KEY)
    anna, bo = people.add(Person("anna", is_admin=False)), people.add(Person("bo", is_admin=False))
    assert people.of(anna).name == "anna" and people.of(f" {bo}\n").name == "bo"
    assert people.of(RUN_KEY) == Person() and people.of(RUN_KEY).is_admin
    for wrong in ("", anna[:-1], anna + "x", "x" * 10_000, RUN_KEY + anna, "\udcff"):
        assert people.of(wrong) is None, wrong


def test_no_key_is_kept_and_the_file_is_its_owners(tmp_path):
    key = People(tmp_path, RUN_KEY).add(Person("anna"))
    text = (tmp_path / FILE).read_text()
    assert key not in text and key.removeprefix("sk-claw-") not in text
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    (tmp_path / FILE).chmod(0o640)
    with pytest.raises(UsageError, match="readable by others"):
        People(tmp_path, RUN_KEY).of("x")


def test_who_comes_and_goes_counts_at_once_in_a_process_that_runs(tmp_path):
    serving, desk = People(tmp_path, RUN_KEY), People(tmp_path)
    assert serving.named("anna") is None
    key = desk.add(Person("anna", False, 3, 500))
    assert serving.of(key) == serving.named("anna") == Person("anna", False, 3, 500)
    before = serving.secret("anna")
    desk.remove("anna")
    assert serving.of(key) is None and serving.named("anna") is None
    desk.add(Person("anna"))
    assert serving.of(key) is None and serving.secret("anna") not in ("", before)


def test_a_budget_is_changed_at_once_and_leaves_the_rest_as_it_was(tmp_path):
    serving, desk = People(tmp_path, RUN_KEY), People(tmp_path)
    key = desk.add(Person("anna", False, 3, 500, ("chat",)))
    assert serving.named("anna").tokens_per_day == 500
    desk.budget("anna", tokens_per_day=900)
    assert serving.of(key) == Person("anna", False, 3, 900, ("chat",))
    desk.budget("anna", is_paused=True)
    assert serving.of(key) == Person("anna", False, 3, 900, ("chat",), is_paused=True)
    desk.budget("anna", requests_per_minute=0, is_paused=False)
    assert serving.of(key) == Person("anna", False, 0, 900, ("chat",))
    with pytest.raises(UsageError, match="is a count"):
        desk.budget("anna", tokens_per_day=-1)
    with pytest.raises(UsageError, match="nobody is called so"):
        desk.budget("bo", tokens_per_day=1)
    assert serving.named("anna").tokens_per_day == 900


@pytest.mark.parametrize("name", ["", "default", "../anna", "Anna", "a" * 41, "a b", "-x", "a/b"])
def test_names_that_cannot_be_folders_are_refused(tmp_path, name):
    with pytest.raises(UsageError, match="not a name for a person"):
        People(tmp_path).add(Person(name))


def test_a_name_is_taken_once_and_a_stranger_cannot_be_put_out(tmp_path):
    people = People(tmp_path)
    people.add(Person("anna"))
    with pytest.raises(UsageError, match="there is a person of this name"):
        people.add(Person("anna"))
    with pytest.raises(UsageError, match="nobody is called so") as refused:
        people.remove("bo")
    assert "anna" in str(refused.value)


def test_a_run_without_a_key_has_one_administrator(tmp_path):
    assert People(tmp_path).of("anything") == Person() and People(tmp_path).secret() == ""


def a_run(folder, **sections):
    values = {"plugin_name": "personal", "runs": str(folder), "name": "run"}
    return ["--run", str(RunDir.create(settings.parse(values | sections)).path)]


def test_the_command_line_lets_people_in_and_out(tmp_path):
    where = a_run(tmp_path)
    done = CliRunner().invoke(app, ["people", "add", "anna", "--tokens-per-day", "500", *where])
    key = done.output.split("shown this once): ")[1].split()[0]
    assert People(tmp_path / "run", RUN_KEY).of(key) == Person("anna", False, 0, 500)
    listed = CliRunner().invoke(app, ["people", "list", *where]).output
    assert "anna" in listed and "500" in listed and key not in listed
    done = CliRunner().invoke(app, ["people", "budget", "anna", "--tokens-per-day", "9",
                                    "--pause", *where])
    assert "9 tokens a day; paused" in done.output
    assert People(tmp_path / "run", RUN_KEY).of(key) == Person("anna", False, 0, 9, is_paused=True)
    assert "paused" in CliRunner().invoke(app, ["people", "list", *where]).output
    done = CliRunner().invoke(app, ["people", "budget", "anna", *where])
    assert done.exit_code and "nothing to change" in str(done.output) + str(done.exception)
    assert "opens nothing" in CliRunner().invoke(app, ["people", "remove", "anna", *where]).output
    assert "Nobody but you" in CliRunner().invoke(app, ["people", "list", *where]).output


def test_full_weights_have_one_person(tmp_path):
    where = a_run(tmp_path, lora={"rank": 0})
    done = CliRunner().invoke(app, ["people", "add", "anna", *where])
    assert isinstance(done.exception, UsageError) and "lora.rank" in str(done.exception)


def test_a_key_is_for_what_it_was_made_for(tmp_path):
    people = People(tmp_path, RUN_KEY)
    only = people.add(Person("anna", False, scopes=("feedback",)))
    assert People(tmp_path, RUN_KEY).of(only).scopes == ("feedback",)
    assert people.of(people.add(Person("bo"))).scopes == ("chat", "feedback")
    for wrong in ((), ("chat", "root"), ("",)):
        with pytest.raises(UsageError, match="scopes"):
            people.add(Person("eve", scopes=wrong))


def test_a_file_of_people_without_scopes_is_read_as_before(tmp_path):
    key = People(tmp_path, RUN_KEY).add(Person("anna"))
    rows = json.loads((tmp_path / FILE).read_text())
    del rows["people"][0]["scopes"]
    (tmp_path / FILE).write_text(json.dumps(rows))
    assert People(tmp_path, RUN_KEY).of(key).scopes == ("chat", "feedback")
