"""What a command does, says and leaves, in a sandbox of the real engine."""

import time
from pathlib import Path
from typing import Any

import pytest

from claw.sdk.sandbox import Sandbox, SandboxError, Spec, engine, open_sandbox

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("leaves_nothing")]


def processes(box: Sandbox, word: str) -> int:
    """How many processes have `word` in their command line (the one that looks not)."""
    ran = box.run(["pgrep", "-fc", word])
    return int(ran.stdout)


def test_a_command_is_a_fresh_process_of_the_stated_user(box: Sandbox) -> None:
    box.run("cd /; export LEFT=over")
    ran = box.run("id -u; pwd; echo ${LEFT:-gone}; echo wrong >&2; exit 3")
    assert ran.stdout == b"1000\n/work\ngone\n"
    assert (ran.stderr, ran.exit_code) == (b"wrong\n", 3)


def test_many_commands_need_no_exec_of_the_engine(box: Sandbox) -> None:
    for i in range(20):
        assert box.run(["echo", str(i)]).stdout == f"{i}\n".encode()
    assert not engine.api().inspect_container(box.id)["ExecIDs"]


def test_environment_directory_and_user_are_those_of_the_call(box: Sandbox) -> None:
    ran = box.run("echo $COLOUR $HOME; pwd; id -u", env={"COLOUR": "blue"}, cwd="/usr", user="root")
    assert ran.stdout == b"blue /root\n/usr\n0\n"


def test_the_environment_of_the_spec_is_there(needs_docker: None) -> None:
    with open_sandbox(Spec(env={"TZ": "UTC", "NAME": "a b"})) as own:
        assert own.run('echo "$NAME"').stdout == b"a b\n"


@pytest.mark.parametrize(("command", "code"), [
    (["no-such-program"], 127), (["/etc/passwd"], 126), ("kill -SEGV $$", 139), ("kill -9 $$", 137),
    (["echo", "x" * (1 << 17)], 126),
])
def test_what_cannot_run_has_the_exit_code_of_a_shell(
    box: Sandbox, command: str | list[str], code: int,
) -> None:
    ran = box.run(command)
    assert ran.exit_code == code
    assert not ran.out_of_memory
    assert not isinstance(command, list) or ran.stderr


@pytest.mark.parametrize("words", [{"cwd": "/no/such"}, {"user": "nobody-has-this-name"},
    {"user": "64999"}, {"user": str(10**30)}, {"env": {"A": "nul\0"}}])
def test_a_wrong_directory_user_or_variable_is_said_in_the_output(
    box: Sandbox, words: dict[str, Any],
) -> None:
    ran = box.run("true", **words)
    assert ran.exit_code == 126
    assert ran.stderr


def test_words_in_any_language_pass(box: Sandbox) -> None:
    assert box.run(["echo", "grüße 你好"], env={"LC_ALL": "C"}).text == "grüße 你好\n"
    box.write("你好.txt", b"x")
    assert box.read("你好.txt") == b"x"


def test_an_interrupted_call_never_gets_the_answer_of_another(needs_docker: None) -> None:
    own = open_sandbox()
    line = own._line  # type: ignore[attr-defined]
    read = line._channel.read

    def interrupted(count: int, end: float) -> bytes:
        raise KeyboardInterrupt

    line._channel.read = interrupted
    with pytest.raises(KeyboardInterrupt):
        own.run("echo first")
    line._channel.read = read
    with pytest.raises(SandboxError, match="closed"):
        own.run("echo second")


def test_a_command_without_stdin_reads_the_end_at_once(box: Sandbox) -> None:
    assert box.run(["cat"], timeout_s=10).exit_code == 0


def test_stdin_arrives_whole_and_a_reader_that_stops_early_is_fine(box: Sandbox) -> None:
    data = bytes(range(256)) * 40_000
    assert box.run(["sha256sum"], stdin=data).stdout == box.run(
        ["python3", "-c", "import hashlib;print(hashlib.sha256(bytes(range(256))*40000).hexdigest()"
         "+'  -')"]).stdout
    ran = box.run("exec <&-; sleep 0.1; echo done", stdin=data)
    assert (ran.exit_code, ran.stdout) == (0, b"done\n")


def test_bytes_that_are_no_text_arrive_as_they_are(box: Sandbox) -> None:
    ran = box.run(r"printf '\xff\xfe\x00ok'")
    assert ran.stdout == b"\xff\xfe\x00ok"
    assert ran.text == "��\x00ok"


def test_the_deadline_kills_a_command_that_ignores_signals(box: Sandbox) -> None:
    began = time.monotonic()
    ran = box.run("trap '' TERM INT HUP; echo before; sleep 300 & wait; sleep 300", timeout_s=0.5)
    assert time.monotonic() - began < 10
    assert (ran.exit_code, ran.timed_out, ran.stdout) == (None, True, b"before\n")
    assert processes(box, "sleep 300") == 0


def test_the_deadline_reaches_daemons_that_left_session_parent_and_environment(
    box: Sandbox,
) -> None:
    script = "(setsid env -i /bin/sleep 301 </dev/null >/dev/null 2>&1 &); sleep 302"
    ran = box.run(script, timeout_s=0.5)
    assert ran.timed_out
    assert processes(box, "sleep 30[12]") == 0


def test_the_deadline_spares_what_an_earlier_command_left(box: Sandbox) -> None:
    box.run("setsid sleep 303 >/dev/null 2>&1 &")
    box.run("sleep 304", timeout_s=0.3)
    assert processes(box, "sleep 303") == 1
    box.sweep()
    assert processes(box, "sleep 303") == 0


def test_a_child_that_holds_the_output_delays_nobody_and_may_go_on_writing(box: Sandbox) -> None:
    began = time.monotonic()
    ran = box.run("(sleep 1; echo late; echo ok >/work/late) & echo now", timeout_s=30)
    assert ran.stdout == b"now\n"
    assert time.monotonic() - began < 0.9
    time.sleep(1.5)
    assert box.read("/work/late") == b"ok\n"


def test_killing_everything_hits_neither_the_agent_nor_the_answer(box: Sandbox) -> None:
    for user in ("1000", "root"):
        for _ in range(25):  # the moment in which it is started is no weak one
            box.run("kill -9 1; kill -9 $PPID", user=user)
            assert box.run("kill -9 -1; echo here", user=user).stdout == b"here\n"
    assert box.run("echo still").stdout == b"still\n"


def test_nobody_inside_reads_or_writes_what_belongs_to_the_agent(box: Sandbox) -> None:
    for user in ("1000", "root"):
        ran = box.run("cat /proc/1/environ; echo x >/proc/1/fd/1; head -c1 /proc/1/mem; "
                      "readlink -v /proc/$PPID/fd/1", user=user)
        assert ran.stdout == b""
        assert ran.stderr.count(b"ermission denied") == 4


def test_no_command_has_capabilities_or_may_get_new_ones(box: Sandbox) -> None:
    for user in ("1000", "root"):
        ran = box.run("grep -E '^(Cap|NoNewPrivs)' /proc/self/status", user=user)
        values = {line.split(":\t")[0]: line.split("\t")[1] for line in ran.text.splitlines()}
        assert values.pop("NoNewPrivs") == "1"
        assert len(values) == 5
        assert {int(v, 16) for v in values.values()} == {0}


def test_root_keeps_the_capabilities_that_the_spec_names_and_no_others(needs_docker: None) -> None:
    with open_sandbox(Spec(user="0:0", capabilities=("CHOWN",))) as own:
        assert own.run("touch f; chown 7:7 f; stat -c %u f", cwd="/root").stdout == b"7\n"
        assert own.run("grep CapEff /proc/self/status").text.split()[1] == f"{1:016x}"
        assert own.run("grep CapEff /proc/self/status", user="1000").text.split()[1] == "0" * 16


def test_a_gigabyte_of_output_is_kept_to_its_head_and_tail(needs_docker: None) -> None:
    with open_sandbox(Spec(memory_mb=128)) as own:
        ran = own.run("printf begin; head -c 1000000000 /dev/zero; printf end; echo oops >&2",
                      max_output=1000, timeout_s=120)
    assert (ran.exit_code, ran.truncated, ran.stderr) == (0, True, b"oops\n")
    assert ran.stdout.startswith(b"begin\0")
    assert ran.stdout.endswith(b"\0end")
    assert f"[... {1_000_000_008 - 1000} bytes left out ...]".encode() in ran.stdout
    assert len(ran.stdout) < 1100


def test_output_of_exactly_the_limit_is_whole(box: Sandbox) -> None:
    ran = box.run("printf 0123456789", max_output=10)
    assert (ran.stdout, ran.truncated) == (b"0123456789", False)
    ran = box.run("printf 0123456789A", max_output=10)
    assert ran.stdout == b"01234\n[... 1 bytes left out ...]\n6789A"


def test_endless_output_ends_at_the_deadline(box: Sandbox) -> None:
    ran = box.run("cat /dev/zero", timeout_s=0.5, max_output=100)
    assert ran.timed_out
    assert ran.truncated


def test_orphans_are_reaped_and_take_no_places(needs_docker: None) -> None:
    with open_sandbox(Spec(pids=32)) as own:
        for _ in range(5):
            ran = own.run("for i in $(seq 10); do (setsid true &); done; sleep 0.1")
            assert ran.exit_code == 0
        zombies = own.run("ps -eo stat | grep -c Z")
        assert zombies.stdout == b"0\n"


def test_out_of_memory_is_told_from_a_kill(needs_docker: None) -> None:
    with open_sandbox(Spec(memory_mb=128)) as own:
        ran = own.run(["python3", "-c", "x = b'x' * (1 << 28)"])
        assert (ran.exit_code, ran.out_of_memory) == (137, True)
        ran = own.run("kill -9 $$")
        assert (ran.exit_code, ran.out_of_memory) == (137, False)


def test_a_memory_bomb_of_many_processes_does_not_take_the_agent_along(needs_docker: None) -> None:
    with open_sandbox(Spec(memory_mb=128)) as own:
        own.run("for i in 1 2 3 4; do python3 -c \"x = b'x' * (1 << 27)\" & done; wait")
        assert own.run("echo here").stdout == b"here\n"


def test_a_full_tmp_leaves_a_sandbox_that_answers(needs_docker: None) -> None:
    with open_sandbox(Spec(memory_mb=128, tmpfs_mb=64)) as own:
        ran = own.run("head -c 100000000 /dev/zero >/tmp/big")
        assert b"No space left" in ran.stderr
        assert own.run("echo here").stdout == b"here\n"


def test_one_file_has_a_largest_size(needs_docker: None) -> None:
    with open_sandbox(Spec(file_mb=1)) as own:
        assert own.run("head -c 3000000 /dev/zero >big").exit_code != 0
        assert own.run("stat -c %s big").stdout == b"1048576\n"


def test_a_fork_bomb_in_front_ends_at_its_deadline(needs_docker: None) -> None:
    with open_sandbox(Spec(pids=64)) as own:
        began = time.monotonic()
        ran = own.run("bomb() { bomb | bomb & wait; }; bomb", timeout_s=1)
        assert ran.timed_out
        assert time.monotonic() - began < 20
        assert own.run("ls /proc | grep -c '^[0-9]'").exit_code == 0


def test_a_fork_bomb_left_behind_is_an_answer_and_can_be_swept(needs_docker: None) -> None:
    with open_sandbox(Spec(pids=64)) as own:
        own.run("bomb() { bomb | bomb & }; bomb", timeout_s=5)
        time.sleep(1)
        ran = own.run("echo here", timeout_s=5)
        assert ran.exit_code != 0 or ran.timed_out or ran.stdout == b"here\n"
        own.sweep()
        assert own.run("echo here").stdout == b"here\n"
        assert int(own.run("ps -e --no-headers | wc -l").stdout) < 10


def test_cpu_time_is_bounded(needs_docker: None) -> None:
    with open_sandbox(Spec(cpus=0.25)) as own:
        quota = own.run("cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu/cpu.cfs_quota_us").stdout
        assert quota.split()[0] == b"25000"


def test_the_memory_killer_prefers_commands_to_what_keeps_them(box: Sandbox) -> None:
    # the keeper has a command's score while it starts one, and may be late in taking its own again
    ran = box.run("cat /proc/self/oom_score_adj\n"
                  "until grep -qx 0 /proc/$PPID/oom_score_adj; do sleep 0.1; done\n"
                  "cat /proc/{$PPID,1}/oom_score_adj")
    assert ran.stdout == b"500\n0\n0\n"


def test_a_command_ignores_no_signal_from_the_start(box: Sandbox) -> None:
    ran = box.run(["grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"])
    internal = 1 << 31 | 1 << 32  # the C library's own two
    assert {int(line.split()[1], 16) & ~internal for line in ran.text.splitlines()} == {0}


@pytest.mark.parametrize("command", ["", [], "a\0b"])
def test_what_is_no_command_is_refused(box: Sandbox, command: str | list[str]) -> None:
    with pytest.raises(SandboxError, match="a command must be words"):
        box.run(command)


def test_a_command_needs_a_deadline(box: Sandbox) -> None:
    for wrong in (0, -1, float("inf"), float("nan")):
        with pytest.raises(SandboxError, match="deadline"):
            box.run("true", timeout_s=wrong)


# --- files ---------------------------------------------------------------------------------------

def test_files_go_in_and_out_also_under_a_tmpfs(box: Sandbox) -> None:
    data = bytes(range(256)) * 50_000  # more than one piece
    for path in ("/tmp/deep/er/file", "relative.bin", "-odd name'$(x)"):
        box.write(path, data, mode=0o600)
        assert box.read(path) == data
        assert box.run(["stat", "-c", "%a %u", "--", path]).stdout == b"600 1000\n"


def test_a_file_that_is_missing_or_too_large_says_so(box: Sandbox) -> None:
    with pytest.raises(SandboxError, match="No such file"):
        box.read("/no/such")
    box.write("ten", b"0123456789")
    assert box.read("ten", max_bytes=10) == b"0123456789"
    with pytest.raises(SandboxError, match="too large"):
        box.read("ten", max_bytes=9)
    with pytest.raises(SandboxError, match="ermission denied"):
        box.write("/etc/passwd", b"")


def test_many_files_arrive_in_one_go(box: Sandbox, tmp_path: Path) -> None:
    box.put({"a/one": b"1", "b": b"2"}, "/tmp/put", mode=0o640)
    assert box.read("/tmp/put/a/one") == b"1"
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/run.sh").write_bytes(b"#!/bin/sh\necho ran\n")
    (tmp_path / "sub/run.sh").chmod(0o755)
    (tmp_path / "big").write_bytes(b"x" * 9_000_000)
    (tmp_path / "link").symlink_to("sub/run.sh")
    box.put_tree(tmp_path, "/tmp/tree")
    assert box.run(["/tmp/tree/link"]).stdout == b"ran\n"
    assert box.run(["stat", "-c", "%s", "/tmp/tree/big"]).stdout == b"9000000\n"


def test_root_writes_what_the_agents_user_cannot_change(box: Sandbox) -> None:
    box.write("/tests/check.sh", b"exit 0", user="root")
    ran = box.run("echo x >/tests/check.sh")
    assert ran.exit_code != 0
    assert box.read("/tests/check.sh") == b"exit 0"
