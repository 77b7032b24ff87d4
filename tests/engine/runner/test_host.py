"""The runner process, end to end: a fake actor, a real process, a real HTTP request."""

import asyncio
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
from contextlib import asynccontextmanager

import httpx
import pytest
from runner_doubles import FakeActor, text_answer

from claw import config
from claw.engine.runner.__main__ import main

KEY = "key-of-the-host-test"
BODY = {"model": "claw-policy", "messages": [{"role": "user", "content": "hello"}]}


def write_spec(folder, **changes):
    """Write what the launcher writes."""
    run = config.load(overrides=(
        "plugin_name=personal", "serve.port=0", "wire.heartbeat_s=0.1", "wire.dead_after_s=5",
        *changes.pop("overrides", ()),
    ))
    key = folder / "api_key"
    key.write_text(KEY)
    key.chmod(0o600)
    spec = {
        "config": config.resolved(run), "actor": f"ipc://{folder}/runners",
        "run_dir": str(folder), "api_key_file": str(key), "ready": str(folder / "ready.json"),
    } | changes
    path = folder / "runner.json"
    path.write_text(json.dumps(spec))
    return path


@asynccontextmanager
async def runner(spec, log, *, parent=None):
    command = parent or [sys.executable, "-m", "claw.engine.runner", "--spec", str(spec)]
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(*command, stdout=out, stderr=out)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def until_ready(folder, log, seconds=20.0):
    file = folder / "ready.json"
    try:
        async with asyncio.timeout(seconds):
            while not file.exists():
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(log.read_text())
    return json.loads(file.read_text())


def run(work):
    asyncio.run(asyncio.wait_for(work, 60))


def test_a_request_goes_through_the_process_and_back(tmp_path):
    log = tmp_path / "log"

    async def work():
        spec = write_spec(tmp_path)
        async with FakeActor(f"ipc://{tmp_path}/runners") as actor, runner(spec, log) as process:
            address = (await until_ready(tmp_path, log))["address"]
            assert address.startswith("http://127.0.0.1:")
            async with httpx.AsyncClient(base_url=address) as client:
                headers = {"authorization": f"Bearer {KEY}"}
                path = "/v1/chat/completions"
                answer = await client.post(path, json=BODY, headers=headers, timeout=20)
                assert answer.json()["choices"][0]["message"]["content"] == "hello there"
                assert answer.json()["id"] == "chatcmpl-turn_1"
                assert answer.json()["system_fingerprint"] == "claw-v7"
                assert (await client.post(path, json=BODY)).status_code == 401
                assert (await client.get("/ready")).status_code == 200
            hello = (await actor.until("runner.hello"))[0]
            assert hello.fields == {
                "plugin": "personal", "pid": process.pid, "address": address,
            }
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 20) == 0
            assert not (tmp_path / "ready.json").exists()
        assert KEY not in log.read_text()

    run(work())


def test_sigterm_lets_an_answer_end_and_a_restarted_actor_gets_the_request_again(tmp_path):
    log = tmp_path / "log"

    async def work():
        spec = write_spec(tmp_path)
        address = f"ipc://{tmp_path}/runners"
        async with runner(spec, log) as process:
            async with FakeActor(address, lambda a, m: []) as first:
                url = (await until_ready(tmp_path, log))["address"]
                client = httpx.AsyncClient(
                    base_url=url, headers={"authorization": f"Bearer {KEY}"}, timeout=30
                )
                asking = asyncio.create_task(client.post("/v1/chat/completions", json=BODY))
                await first.until("turn.ask")
            process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.3)
            async with FakeActor(address, lambda a, m: text_answer(m, "after all")):
                answer = await asking
                assert answer.json()["choices"][0]["message"]["content"] == "after all"
                assert await asyncio.wait_for(process.wait(), 20) == 0
            await client.aclose()

    run(work())


def test_the_process_ends_when_the_actor_says_stop(tmp_path):
    from claw.engine.wire import Message

    async def work():
        spec, log = write_spec(tmp_path), tmp_path / "log"
        async with FakeActor(f"ipc://{tmp_path}/runners") as actor, runner(spec, log) as process:
            await until_ready(tmp_path, log)
            await actor.until("runner.hello")
            await actor.send(Message("stop"))
            assert await asyncio.wait_for(process.wait(), 20) == 0

    run(work())


def test_the_process_ends_when_its_parent_dies(tmp_path):
    spec, log = write_spec(tmp_path), tmp_path / "log"
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-m', 'claw.engine.runner', '--spec',"
        f" {str(spec)!r}])\n"
        "time.sleep(60)\n"
    )

    async def work():
        parent = [sys.executable, "-c", code]
        async with FakeActor(f"ipc://{tmp_path}/runners"), runner(spec, log, parent=parent) as p:
            child = (await until_ready(tmp_path, log))["pid"]
            p.kill()
            async with asyncio.timeout(20):
                while _is_alive(child):
                    await asyncio.sleep(0.1)
            assert not (tmp_path / "ready.json").exists()

    run(work())


def _is_alive(pid):
    """Whether the process runs; one that ended and that nobody waited for does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_plugin_with_tasks_is_played(tmp_path, monkeypatch):
    (tmp_path / "double_module.py").write_text(
        "from claw.sdk.doubles import DoublePlugin\n"
        "_plugin = DoublePlugin()\n"
        "claw_config = _plugin.claw_config\nclaw_tasks = _plugin.claw_tasks\n"
        "claw_env = _plugin.claw_env\nclaw_judges = _plugin.claw_judges\n"
    )
    info = tmp_path / "claw_env_double-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: claw-env-double\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[claw]\ndouble = double_module\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))

    async def work():
        log = tmp_path / "log"
        spec = write_spec(tmp_path, overrides=("plugin_name=double", "rollout.n=2"))
        async with FakeActor(f"ipc://{tmp_path}/runners") as actor, runner(spec, log) as process:
            assert (await until_ready(tmp_path, log))["address"] == ""
            assert {m["end"] for m in await actor.until("trace.end", 4)} == {"done"}
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 20) == 0
            ended = {m["trace_id"] for m in actor.of("trace.end")}
            opened = {f"trace_{i + 1}" for i in range(actor.num_traces)}
            assert ended == opened, log.read_text()

    run(work())


@pytest.mark.parametrize(("changes", "code", "said"), [
    ({"overrides": ("plugin_name=persnal",)}, 2, "did you mean 'personal'"),
    ({"overrides": ("plugin.personal.cors_orgin=x",)}, 2, "did you mean 'cors_origin'"),
    ({"overrides": ("serve.host=0.0.0.0", "serve.plain_http=true"), "api_key_file": ""}, 2,
     "needs a key"),
    ({"overrides": ("serve.tls_cert=none.pem", "serve.tls_key=none.pem")}, 2,
     "certificate cannot be used"),
])
def test_a_mistake_is_told_in_words_with_its_exit_code(tmp_path, capsys, changes, code, said):
    assert main(["--spec", str(write_spec(tmp_path, **changes))]) == code
    assert said in capsys.readouterr().err


def a_certificate(folder):
    """A certificate for 127.0.0.1 and its private key, as PEM files."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=claw", "-addext", "subjectAltName=IP:127.0.0.1",
         "-out", str(cert), "-keyout", str(key)], check=True, capture_output=True)
    key.chmod(0o600)
    return cert, key


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate")
def test_with_a_certificate_the_endpoint_speaks_https_and_nothing_else(tmp_path):
    async def work():
        cert, key = a_certificate(tmp_path)
        spec = write_spec(tmp_path, overrides=(f"serve.tls_cert={cert}", f"serve.tls_key={key}"))
        async with FakeActor(f"ipc://{tmp_path}/runners"), runner(spec, tmp_path / "log"):
            address = (await until_ready(tmp_path, tmp_path / "log"))["address"]
            assert address.startswith("https://127.0.0.1:")
            trust = ssl.create_default_context(cafile=str(cert))
            async with httpx.AsyncClient(verify=trust) as client:
                headers = {"authorization": f"Bearer {KEY}"}
                answer = await client.get(f"{address}/v1/models", headers=headers)
                assert answer.status_code == 200
                assert "; Secure" in (await client.post(
                    f"{address}/login", data={"key": KEY})).headers["set-cookie"]
                with pytest.raises(httpx.HTTPError):
                    await client.get(address.replace("https", "http") + "/health")

    run(work())


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate")
def test_a_private_key_that_others_can_read_is_refused(tmp_path, capsys):
    cert, key = a_certificate(tmp_path)
    key.chmod(0o644)
    spec = write_spec(tmp_path, overrides=(f"serve.tls_cert={cert}", f"serve.tls_key={key}"))
    assert main(["--spec", str(spec)]) == 2
    assert "readable by others" in capsys.readouterr().err


def test_a_key_file_that_others_can_read_is_refused(tmp_path, capsys):
    spec = write_spec(tmp_path)
    (tmp_path / "api_key").chmod(0o644)
    assert main(["--spec", str(spec)]) == 2
    assert "chmod 600" in capsys.readouterr().err


def test_a_port_in_use_is_told(tmp_path, capsys):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        spec = write_spec(tmp_path, overrides=(f"serve.port={taken.getsockname()[1]}",))
        assert main(["--spec", str(spec)]) == 2
    assert "cannot be used" in capsys.readouterr().err


def test_the_runner_imports_no_torch():
    code = (
        "import sys, claw.engine.runner.host, claw.engine.runner.http\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr
