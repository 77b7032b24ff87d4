"""Harbor task folders: every field, old spellings, and refusals by name."""

from pathlib import Path

import pytest
from some_folders import TOML, harbor

from claw.sdk.formats import folder
from claw.sdk.formats.folder import FormatError
from claw.sdk.formats.harbor import substituted, without_canary

FULL = """
schema_version = "1.4"
source = "somewhere"
artifacts = ["/work/out"]
[task]
name = "org/full"
version = "3"
authors = [{name = "A", email = "a@example.org"}]
[metadata]
difficulty = "hard"
[agent]
timeout_sec = 120
user = 1000
[verifier]
timeout_sec = 30
user = "root"
env = {TOKEN = "${TOKEN:-none}"}
[[verifier.collect]]
command = "echo out"
timeout_sec = 5
user = "1000"
[environment]
build_timeout_sec = 99
docker_image = "some/image:1"
cpus = 2.5
memory_mb = 300
storage_mb = 1000
network_mode = "no-network"
env = {A = "b"}
workdir = "/app"
[environment.healthcheck]
command = "true"
interval_sec = 1
retries = 7
[solution]
env = {S = "t"}
"""


def test_every_supported_field_is_read(tmp_path: Path) -> None:
    read = folder.read(harbor(tmp_path, FULL, **{"solution/solve.sh": "echo\n"}))
    assert (read.format, read.name, read.instruction) == ("harbor", "org/full", "Do it.\n")
    assert (read.image, read.workdir, read.network) == ("some/image:1", "/app", "none")
    assert (read.cpus, read.memory_mb, read.storage_mb) == (2.5, 300, 1000)
    assert (read.agent_user, read.agent_timeout_s) == ("1000", 120)
    assert (read.verifier_user, read.verifier_timeout_s) == ("root", 30)
    assert dict(read.verifier_env) == {"TOKEN": "${TOKEN:-none}"}
    assert read.collect == (folder.Collect("echo out", 5, "1000"),)
    assert read.healthcheck == folder.Healthcheck("true", 1, 30, 0, 5, 7)
    assert (dict(read.env), dict(read.solution_env)) == ({"A": "b"}, {"S": "t"})
    assert read.solution_command == ("bash", "/solution/solve.sh")
    assert read.metadata["difficulty"] == "hard"
    assert read.unsupported == ()


def test_old_spellings_are_read_and_named(tmp_path: Path) -> None:
    toml = ('version = "1.0"\n[environment]\ndocker_image = "x"\nmemory = "2G"\nstorage = "10G"\n'
            "allow_internet = false\n")
    read = folder.read(harbor(tmp_path, toml))
    assert (read.memory_mb, read.storage_mb, read.network) == (2048, 10240, "none")
    assert sum("old spelling" in note for note in read.notes) == 3


def test_the_network_is_public_when_nothing_is_said(tmp_path: Path) -> None:
    assert folder.read(harbor(tmp_path)).network == "public"


def test_an_unknown_key_is_named_not_dropped(tmp_path: Path) -> None:
    read = folder.read(harbor(tmp_path, TOML + "[environment.healthchek]\ncommand = 'x'\n"))
    assert "unknown key environment.healthchek" in read.notes


@pytest.mark.parametrize(("toml", "files", "name"), [
    ("[[steps]]\nname = 'a'\n", {}, "[[steps]]"),
    ("[environment]\ndocker_image = 'x'\nos = 'windows'\n", {}, "environment.os"),
    ("[environment]\ndocker_image = 'x'\ngpus = 1\n", {}, "environment.gpus"),
    ("[environment]\ndocker_image = 'x'\n[environment.tpu]\ntype = 'v5'\n", {}, "environment.tpu"),
    ("[environment]\ndocker_image = 'x'\nnetwork_mode = 'allowlist'\nallowed_hosts = ['a.b']\n",
     {}, "allowlist"),
    ("[environment]\ndocker_image = 'x'\nskills_dir = 's'\n", {}, "environment.skills_dir"),
    ("[environment]\ndocker_image = 'x'\n[[environment.mcp_servers]]\nname = 'm'\nurl = 'u'\n",
     {}, "environment.mcp_servers"),
    ("[environment]\ndocker_image = 'x'\n[verifier]\nenvironment_mode = 'separate'\n", {},
     "verifier.environment_mode"),
    ("[environment]\ndocker_image = 'x'\n[verifier.environment]\nos = 'linux'\n", {},
     "verifier.environment_mode"),
    ("[environment]\ndocker_image = 'x'\n[agent]\nnetwork_mode = 'no-network'\n", {},
     "agent.network_mode"),
    ("[environment]\ndocker_image = 'x'\n[[verifier.collect]]\ncommand = 'x'\nservice = 'db'\n",
     {}, "a service other than main"),
    ("", {"environment/docker-compose.yaml": "services: {}\n"}, "environment/docker-compose.yaml"),
    ("", {"environment/README.md": "\n"}, "without a Dockerfile"),
    (TOML, {"tests/Dockerfile": "FROM x\n"}, "tests/Dockerfile"),
    (TOML, {"trajectory.json": "{}"}, "trajectory.json"),
])
def test_what_is_not_run_is_refused_by_name(
    tmp_path: Path, toml: str, files: dict[str, str], name: str
) -> None:
    read = folder.read(harbor(tmp_path, toml, **files))
    with pytest.raises(FormatError) as refused:
        read.refuse_unsupported()
    assert name in str(refused.value)


@pytest.mark.parametrize(("toml", "says"), [
    ("not toml", "not TOML"),
    ("[verifier]\ntimeout_sec = " + "1" * 5000, "not TOML"),
    ("[agent]\ntimeout_sec = 'soon'\n", "agent.timeout_sec"),
    ("[agent]\ntimeout_sec = -1\n", "agent.timeout_sec"),
    ("[environment]\nnetwork_mode = 'wifi'\n", "environment.network_mode"),
    ("[environment]\nmemory = 'lots'\n", "environment.memory"),
    ("environment = 3\n", "environment"),
    ("[verifier]\nenv = {A = 1}\n", "verifier.env.A"),
    ("[environment]\n", "missing"),
])
def test_a_wrong_file_is_told_in_words(tmp_path: Path, toml: str, says: str) -> None:
    with pytest.raises(FormatError) as refused:
        folder.read(harbor(tmp_path, toml))
    assert says in str(refused.value)


def test_a_folder_of_neither_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no task folder"):
        folder.read(tmp_path)
    with pytest.raises(FormatError, match="no task folder in it"):
        folder.find(tmp_path)


def test_task_folders_are_found_by_name(tmp_path: Path) -> None:
    for name in ("b", "a"):
        harbor(tmp_path / name)
    (tmp_path / "notes").mkdir()
    assert [p.name for p in folder.find(tmp_path)] == ["a", "b"]
    assert folder.find(tmp_path / "a") == [tmp_path / "a"]


def test_canary_lines_at_the_top_are_left_out() -> None:
    text = "<!-- BENCHMARK canary GUID 1 -->\n# harbor-canary GUID 2\n\n# Title\nDo it.\n"
    assert without_canary(text) == "# Title\nDo it.\n"
    assert without_canary("# Title\n# canary below\n") == "# Title\n# canary below\n"


def test_ignored_tests_do_not_travel(tmp_path: Path) -> None:
    files = {".harborignore": "*.md\ntests/big/\n", "tests/notes.md": "x", "tests/big/a": "x",
             "tests/keep.py": "x"}
    assert set(folder.read(harbor(tmp_path, **files)).tests) == {"test.sh", "keep.py"}


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    made = harbor(tmp_path / "task")
    (tmp_path / "secret").write_text("key")
    (made / "tests/link").symlink_to(tmp_path / "secret")
    with pytest.raises(FormatError, match="link leaves"):
        folder.read(made)


def test_variables_come_from_outside_or_from_their_default() -> None:
    values = {"A": "${X}/${Y:-y}", "B": "plain"}
    assert substituted(values, {"X": "1"}) == {"A": "1/y", "B": "plain"}
    with pytest.raises(FormatError, match="variable X"):
        substituted(values, {})
