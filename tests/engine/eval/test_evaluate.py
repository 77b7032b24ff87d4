"""`claw eval` against a real HTTP endpoint, and against own workers in processes of their own."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from claw.errors import ClawError, UsageError
from claw.records import End
from claw.sdk import traces

PLUGIN = '''
import os
from claw.sdk import Task, hookimpl, Verdict
from claw.sdk.doubles import EchoEnv

class Checker:
    name, is_checker = "tests", True
    async def judge(self, case):
        said = str(case.reply.get("content"))
        return Verdict(number=float(case.task.answer in said)) if case.final else Verdict(vote=1)

class Env(EchoEnv):
    def start(self):
        with open(os.environ["EVAL_LOG"], "a") as out:
            out.write(self.ask + "\\\\n")
        if os.path.exists(os.environ["EVAL_LOG"] + ".broken") and "b" in self.ask:
            raise OSError("no disk")
        return super().start()

@hookimpl
def claw_tasks(config, split):
    return [Task(f"{split}-{n}", ({"role": "user", "content": f"say {n}"},), answer=n)
            for n in ("a", "b")]

@hookimpl
def claw_env(task, config):
    return Env(2, task.messages[0]["content"])

@hookimpl
def claw_judges(config):
    return [Checker()]
'''.replace("\\\\n", "\\n")


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """An installed plugin named `measured`; returns the file that counts its environments."""
    folder = tmp_path / "site"
    info = folder / "claw_env_measured-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "claw_env_measured.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: claw-env-measured\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[claw]\nmeasured = claw_env_measured\n")
    log = tmp_path / "made"
    log.touch()
    monkeypatch.setenv("EVAL_LOG", str(log))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(tmp_path)
    yield log
    sys.modules.pop("claw_env_measured", None)


class Server:
    """An endpoint in the official shape; `reply(body) -> (status, answer)` may be replaced."""

    def __init__(self):
        self.asked, self.keys = [], []
        self.reply = lambda body: (200, completion("a b"))
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.asked.append(body)
                outer.keys.append(self.headers.get("authorization"))
                status, answer = outer.reply(body)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                if status == 429:
                    self.send_header("retry-after", "0")
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


def completion(text, finish="stop", **message):
    said = {"role": "assistant", "content": text} | message
    return {"id": "chatcmpl-1", "choices": [{"index": 0, "message": said, "finish_reason": finish}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}


@pytest.fixture
def server():
    made = Server()
    yield made
    made.close()


def evaluate(*words, resume=None, n=0, **asked):
    """Run the command in this process; return (figures, traces, folder)."""
    from pathlib import Path

    from claw.engine.eval.evaluate import Asked, Evaluation
    from claw.engine.eval.show import evaluate as command

    command(list(words), plugin="" if resume else "measured", model="" if resume else "m", n=n,
            asked=Asked(**asked), resume=resume, as_json=True)
    folder = resume or max(Path("runs").iterdir(), key=lambda p: p.stat().st_mtime)
    return json.loads((folder / "summary.json").read_text()), traces.read(
        folder / "attempts.jsonl"), Evaluation.resumed(folder)


def test_an_endpoint_is_measured_in_the_official_shape(plugin, server, monkeypatch, capsys):
    monkeypatch.setenv("THE_KEY", "sk-secret-of-the-test")
    server.reply = lambda body: (200, completion(
        body["messages"][0]["content"] if "say a" in str(body) else "nothing"))
    found, played, job = evaluate("rollout.temperature=0.5", n=2, base_url=server.url,
                                  api_key_env="THE_KEY")
    assert [(r["task"], r["passed"], r["counted"]) for r in found["per_task"]] == [
        ("eval-a", 2, 2), ("eval-b", 0, 2)]
    assert found["pass_at"]["2"]["value"] == 0.5 and found["mean_reward"] == 0.5
    assert found["judges"] == ["checker:tests"] and found["model"] == "m"
    assert json.loads(capsys.readouterr().out) == found
    first = server.asked[0]
    assert first == {"model": "m", "messages": [{"role": "user", "content": first["messages"][0][
        "content"]}], "temperature": 0.5, "max_tokens": 512}
    assert set(server.keys) == {"Bearer sk-secret-of-the-test"}
    assert {(t.task_id, t.attempt) for t in played} == {
        ("eval-a", 0), ("eval-a", 1), ("eval-b", 0), ("eval-b", 1)}
    assert all(t.end is End.DONE and len(t.turns) == 2 and t.num_tokens == 4 for t in played)
    assert [m["role"] for m in played[0].messages] == ["user", "assistant", "user", "assistant"]
    for file in job.run.path.rglob("*"):
        assert not file.is_file() or b"sk-secret" not in file.read_bytes(), file


def test_what_is_finished_is_not_played_again_and_what_failed_is(plugin, server):
    broken = plugin.with_name("made.broken")
    broken.touch()
    found, _, job = evaluate("rollout.retries=0", n=2, base_url=server.url)
    assert (found["counted"], found["failed"]) == (2, 2)
    assert found["failures"] == {"env: OSError: no disk": 2}
    broken.unlink()
    before = plugin.read_text().count("say a"), plugin.read_text().count("say b")
    found, played, _ = evaluate(resume=job.run.path)
    assert (found["attempts"], found["counted"], found["failed"]) == (4, 4, 0)
    assert plugin.read_text().count("say a") == before[0] == 2
    assert plugin.read_text().count("say b") == before[1] + 2
    assert len(played) == 6  # the file keeps what failed too


def test_errors_of_an_endpoint_are_waited_for_or_data(plugin, server):
    tries = []

    def full_then_broken(body):
        tries.append(1)
        if len(tries) == 1:
            return 429, {"error": {"message": "slow down"}}
        if "say a" in str(body):
            return 200, completion("a", "odd_reason")
        return 400, {"error": {"message": "This model's maximum context length is 10 tokens."}}

    server.reply = full_then_broken
    found, _, _ = evaluate("rollout.parallel=1", n=1, base_url=server.url)
    assert found["ends"] == {"done": 1, "context": 1} and found["counted"] == 1
    server.reply = lambda body: (200, b"<html>")
    with pytest.raises(ClawError, match="no attempt counts") as caught:
        evaluate("rollout.retries=0", n=1, base_url=server.url)
    assert "no chat completion" in str(caught.value)


def test_an_endpoint_that_wants_the_newer_name_of_the_limit_gets_it(plugin, server):
    def newer(body):
        if "max_tokens" in body:
            return 400, {"error": {"message": "Use 'max_completion_tokens' instead."}}
        return 200, completion("a b")

    server.reply = newer
    found, _, _ = evaluate(n=1, base_url=server.url)
    assert found["counted"] == 2 and server.asked[-1]["max_completion_tokens"] == 512


def test_tool_calls_reach_the_environment(plugin, server):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}}
    server.reply = lambda body: (200, completion(None, "tool_calls", tool_calls=[call]))
    _, played, _ = evaluate(n=1, base_url=server.url)
    assert played[0].messages[1] == {"role": "assistant", "content": None, "tool_calls": [call]}


@pytest.mark.parametrize(("asked", "said"), [
    ({"base_url": "localhost:1"}, "not a base URL"),
    ({"base_url": "http://x/v1", "api_key_env": "NOT_SET_ANYWHERE"}, "variable is empty"),
    ({"api_key_env": "HOME"}, "has no effect without --base-url"),
])
def test_mistakes_of_the_command_are_told(plugin, asked, said):
    with pytest.raises(UsageError, match=said):
        evaluate(n=1, **asked)


def test_a_resumed_evaluation_takes_no_other_settings(plugin, tmp_path):
    with pytest.raises(UsageError, match="goes on with the settings"):
        evaluate("rollout.n=3", resume=tmp_path)
    (tmp_path / "runs").mkdir()
    with pytest.raises(UsageError, match="not a run folder"):
        evaluate(resume=tmp_path)


# --- own workers ---------------------------------------------------------------------------------


def claw(*words, **more):
    return subprocess.Popen([sys.executable, "-m", "claw", *words], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, start_new_session=True, **more)


OWN = ("worker.kind=scripted", "rollout.max_tokens=8", "wire.heartbeat_s=0.2", "name=own")


def test_own_workers_answer_without_a_trainer_and_nothing_is_left(plugin, tiny_llama_dir, tmp_path):
    done = claw("eval", "--plugin", "measured", "--model", str(tiny_llama_dir), "--n", "3",
                "--json", *OWN)
    out, err = done.communicate(timeout=120)
    assert done.returncode == 0, err
    found = json.loads(out)
    assert (found["counted"], found["endpoint"]) == (6, "own workers")
    from claw.engine.actor.journal import Journal

    journal = Journal(tmp_path / "runs/own", read_only=True)
    turns = journal.read("SELECT kind, state, trace_id FROM turns")
    journal.close()
    assert {kind for kind, _, _ in turns} == {"side"} and len(turns) == 12
    assert len({trace for _, _, trace in turns}) == 6  # no attempt was taken for a repeat
    assert not {state for _, state, _ in turns} & {"waiting", "judging", "queued", "trained"}
    assert _processes_of(tmp_path / "runs/own") == []


def test_an_evaluation_that_is_stopped_goes_on(plugin, tiny_llama_dir, tmp_path):
    words = ("--plugin", "measured", "--model", str(tiny_llama_dir), "--n", "40", "--json")
    begun = claw("eval", *words, *OWN, "rollout.parallel=1")
    file = tmp_path / "runs/own/attempts.jsonl"
    end = time.monotonic() + 60
    while time.monotonic() < end and (not file.exists() or len(file.read_text().split("\n")) < 4):
        assert begun.poll() is None, begun.communicate()
        time.sleep(0.02)
    os.kill(begun.pid, signal.SIGINT)
    _, err = begun.communicate(timeout=60)
    assert begun.returncode == 130 and "claw eval --resume" in err
    first = traces.read(file)
    assert 3 <= len(first) < 80
    again = claw("eval", "--resume", str(tmp_path / "runs/own"), "--json")
    out, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    assert json.loads(out)["counted"] == 80
    played = traces.read(file)
    assert len(played) == 80 and played[: len(first)] == first
    assert _processes_of(tmp_path / "runs/own") == []


def _processes_of(run):
    from pathlib import Path

    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(run) in words:
            found.append(words)
    return found
