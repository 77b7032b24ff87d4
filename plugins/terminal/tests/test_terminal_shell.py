"""The shell that remembers, screens, and files. On the real engine."""

from collections.abc import Iterator

import pytest

from claw.sdk.sandbox import Sandbox, open_sandbox
from claw.sdk.shell import files
from claw.sdk.shell.commands import Done, Shell
from claw.sdk.shell.screen import ScreenError, Screens

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def box(needs_docker: None) -> Iterator[Sandbox]:
    with open_sandbox() as opened:
        yield opened


@pytest.fixture
def shell(box: Sandbox) -> Iterator[Shell]:
    """A shell that remembers nothing of the tests before."""
    yield Shell(box, user="1000:1000", workdir="/work", env={"GIVEN": "yes"})
    box.sweep()
    assert box.run("rm -rf /tmp/.shell /tmp/* /work/*").exit_code == 0


def run(shell: Shell, command: str, timeout_s: float = 10.0) -> Done:
    return shell.run(command, timeout_s=timeout_s, max_output=10_000)


def test_directory_variables_functions_and_aliases_are_kept(shell: Shell) -> None:
    run(shell, "cd /tmp; export A='x  y'; B=(1 2 3); declare -A M=([k]=v); f() { echo hi $1; }; "
               "alias up='echo UP'; T=$'two\\nlines'")
    done = run(shell, 'pwd; echo "$A|${B[1]}|${M[k]}|$GIVEN|$T"; f me; up; printenv A')
    assert done == Done("/tmp\nx  y|2|v|yes|two\nlines\nhi me\nUP\nx  y\n", 0)


@pytest.mark.parametrize(("command", "code"), [
    ("exit 3", 3), ("false", 1), ("exec false", 1), ("set -e; false; echo no", 1), ("if", 2),
    ("no_such_program", 127), ("kill -9 $$", 137), ("cat", 0),
])
def test_a_command_that_ends_the_shell_ends_nothing_else(
    shell: Shell, command: str, code: int
) -> None:
    run(shell, "KEPT=1; cd /tmp")
    assert run(shell, command).exit_code == code
    assert run(shell, "echo $KEPT; pwd").text == "1\n/tmp\n"


def test_a_command_that_hangs_is_killed_and_the_state_stays(shell: Shell) -> None:
    run(shell, "KEPT=1")
    hung = run(shell, "echo before; KEPT=2; sleep 60", timeout_s=0.5)
    assert (hung.timed_out, hung.exit_code, hung.text) == (True, None, "before\n")
    assert run(shell, "echo $KEPT").text == "1\n"


def test_a_background_program_lives_on_and_delays_nothing(shell: Shell) -> None:
    assert run(shell, "sleep 60 & echo started").text == "started\n"
    assert "sleep 60" in run(shell, "pgrep -af sleep").text


def test_output_keeps_its_order_and_strange_bytes_are_text(shell: Shell) -> None:
    assert run(shell, "echo a; echo b >&2; echo c").text == "a\nb\nc\n"
    assert run(shell, r"printf '\377\0x'").text == "\ufffdx"
    assert run(shell, "echo '\ud83c \u00e4'").text == "? \u00e4\n"


def test_a_command_longer_than_an_argument_may_be_is_run(shell: Shell) -> None:
    assert run(shell, f"X='{'a' * 200_000}'; echo ${{#X}}").text == "200000\n"


def test_a_program_on_a_screen_is_typed_to_and_waited_for(shell: Shell) -> None:
    run(shell, "cd /tmp; N=41")
    screens = Screens(shell)
    screens.start("py", "python3 -q -c \"import os; print(os.getcwd())\" -i; N=$N python3 -qi")
    assert "/tmp" in screens.view("py", wait_for=">>>", timeout_s=20)
    screens.send("py", "1 + 41", [], enter=True)
    assert "\n42" in screens.view("py", wait_for="\n42", timeout_s=20)
    screens.send("py", "", ["C-d"], enter=False)
    assert "has ended, exit code 0" in screens.view("py", wait_for="no such text", timeout_s=20)


def test_an_editor_works_by_its_keys(shell: Shell) -> None:
    run(shell, "seq 200 > n.txt")
    screens = Screens(shell)
    screens.start("l", "less n.txt")
    screens.send("l", "/150", ["Enter"], enter=False)
    assert "\n151\n" in screens.view("l", wait_for="\n151", timeout_s=20)
    screens.start("e", "exit 7")
    assert "has ended, exit code 7" in screens.view("e", wait_for="no such text", timeout_s=20)


@pytest.mark.parametrize("id", ["", "a b", "x;kill-server", "=y", "a" * 40])
def test_an_id_that_is_none_is_refused(shell: Shell, id: str) -> None:
    with pytest.raises(ScreenError, match="no id"):
        Screens(shell).view(id)


def test_a_screen_that_was_not_started_is_told(shell: Shell) -> None:
    with pytest.raises(ScreenError, match="start one first"):
        Screens(shell).view("nobody")


def test_keys_that_are_none_are_refused(shell: Shell) -> None:
    screens = Screens(shell)
    screens.start("s", "cat")
    with pytest.raises(ScreenError, match="no key"):
        screens.send("s", "", ["; kill-server"], enter=False)


def test_files_are_written_read_and_edited_where_the_shell_is(shell: Shell) -> None:
    run(shell, "cd /tmp")
    files.write(shell, "a b/c.txt", "one\ntwo\nthree \u00e4\n")
    assert run(shell, "cat '/tmp/a b/c.txt'").text == "one\ntwo\nthree \u00e4\n"
    files.edit(shell, "a b/c.txt", "two", "2")
    assert files.read(shell, "a b/c.txt", first=2, count=1) == "    2\t2\n[1 more lines]"


@pytest.mark.parametrize(("path", "says"), [
    ("/etc/new", "ermission denied"), ("", "empty"), ("/work", "Is a directory"),
])
def test_a_file_that_cannot_be_written_is_told(shell: Shell, path: str, says: str) -> None:
    with pytest.raises(files.FileError, match=says):
        files.write(shell, path, "x")


def test_what_stands_twice_or_nowhere_is_not_replaced(shell: Shell) -> None:
    files.write(shell, "f", "x x y")
    for old in ("x", "z", ""):
        with pytest.raises(files.FileError):
            files.edit(shell, "f", old, "n")
    with pytest.raises(files.FileError, match="No such file"):
        files.read(shell, "nowhere")
    with pytest.raises(files.FileError, match="folder"):
        files.read(shell, "/work")
    run(shell, "head -c 3000000 /dev/zero > big")
    with pytest.raises(files.FileError, match="more than"):
        files.read(shell, "big")
