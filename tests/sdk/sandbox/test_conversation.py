"""A program that stays in a sandbox: asked again and again, lost when it is late or ends."""

from collections.abc import Iterator

import pytest

from claw.sdk.sandbox import Sandbox, SandboxError, Spec, open_sandbox
from claw.sdk.sandbox.conversation import Conversation

pytestmark = pytest.mark.docker

PROGRAM = """
import json, os, struct, sys, time
out = sys.stdout.buffer
def take(count):
    data = sys.stdin.buffer.read(count)
    if len(data) < count:
        sys.exit()
    return data
out.write(b"HI\\n"); out.flush()
while True:
    sizes = struct.unpack(">II", take(8))
    header, body = json.loads(take(sizes[0])), take(sizes[1])
    time.sleep(header.get("sleep", 0))
    if header.get("end"):
        sys.exit()
    said = json.dumps({"uid": os.getuid(), "got": header}).encode()
    out.write(struct.pack(">II", len(said), len(body)) + said + body[::-1]); out.flush()
"""


@pytest.fixture
def box(needs_docker: None) -> Iterator[Sandbox]:
    with open_sandbox(Spec(memory_mb=256)) as made:
        yield made


def opened(box: Sandbox, text: str = PROGRAM, start_s: float = 30.0) -> Conversation:
    return Conversation(box, text, hello=b"HI\n", user="1000:1000", start_s=start_s)


def test_requests_are_answered_in_order_beside_the_commands_of_the_sandbox(box: Sandbox) -> None:
    talk = opened(box)
    for number in range(20):
        answer, body = talk.ask({"n": number}, bytes([number, 0, 255]) * 1000, timeout_s=30)
        assert answer == {"uid": 1000, "got": {"n": number}}
        assert body == bytes([255, 0, number]) * 1000
        assert box.run(["echo", "beside"]).stdout == b"beside\n"
    talk.close()
    talk.close()


@pytest.mark.parametrize("asked", [{"sleep": 60}, {"end": True}])
def test_an_answer_that_is_late_or_never_comes_loses_the_program_not_the_sandbox(
    box: Sandbox, asked: dict[str, object]
) -> None:
    talk = opened(box)
    with pytest.raises(SandboxError, match="is lost"):
        talk.ask(asked, timeout_s=1.0)
    with pytest.raises(SandboxError, match="is lost"):
        talk.ask({}, timeout_s=1.0)
    assert box.run(["true"]).exit_code == 0


@pytest.mark.parametrize(("text", "why"), [
    ("raise SystemExit('no screen')", "no screen"), ("print('HO', flush=True)", "HO"),
    ("import time; time.sleep(60)", "timed out|no answer in time"),
])
def test_a_program_that_does_not_start_says_its_last_words(
    box: Sandbox, text: str, why: str
) -> None:
    with pytest.raises(SandboxError, match=why):
        opened(box, text, start_s=3.0)


def test_a_sandbox_without_a_container_is_refused() -> None:
    with pytest.raises(SandboxError, match="needs a container"):
        opened(object())  # type: ignore[arg-type]
