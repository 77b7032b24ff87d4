"""The real OpenClaw talks to a real run: what it sends, what is captured, what is never judged."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from gateway import Gateway
from system import System, until
from tiny import tiny_llama

# its gateway takes half a minute of two cores to start, and longer where they are shared
pytestmark = [pytest.mark.openclaw, pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(900)]

TURNS = 20
CONTEXT = 40_960
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "note.txt"}}\n</tool_call>'
SPAWN = ('<tool_call>\n{"name": "tool_call", "arguments": {"id": "sessions_spawn", "args": '
         '{"task": "A quizzical task.", "label": "looker"}}}\n</tool_call>')
FAMILY = "agent:main:family"
HINT = "Answer in one short sentence and no more."
STEP = 5
"""samples of the only step: the person's first four turns, one of them with a tool, so that the
last of the five is the reply that is corrected"""
CUES = {" quizzical": "Here is what I know.", " fetchnote": CALL,
        " spawnchild": SPAWN,
        " lighthouse": "The note names a building.", " mistaken": "I am sorry. Shorter now."}
WORDS = [f"A quizzical question with the number {i}." for i in range(TURNS)]
WORDS[3] = "Please fetchnote for me."
WORDS[4] = "No, that is wrong and mistaken. Answer in one short sentence."


class SomeJudge:
    """An endpoint that judges by one word, and keeps what it was asked."""

    def __init__(self) -> None:
        from claw_env_personal.app import build
        from claw_env_personal.settings import PersonalConfig

        from claw.sdk.doubles import Line, ScriptedEngine, ScriptedPeople

        def judged(ask: Any) -> Line:
            is_bad = "mistaken" in str(ask.messages[-1]["content"])
            if "[HINT_START]" in ask.messages[0]["content"]:  # asked for a lesson, not for a vote
                lesson = f"[HINT_START]{HINT}[HINT_END] \\boxed{{1}}"
                return Line(lesson if is_bad else "\\boxed{-1}")
            return Line("\\boxed{-1}" if is_bad else "\\boxed{1}")

        self.engine = ScriptedEngine(script=judged)
        self.app = build(self.engine, PersonalConfig(), {
            "model_name": "judge", "people": ScriptedPeople()})

    @property
    def prompts(self) -> list[str]:
        return [json.dumps(ask.messages, ensure_ascii=False) for ask in self.engine.asks]


def serve(app: Any, stack: ExitStack) -> str:
    """Serve an app on loopback until the stack ends."""
    import socket

    import uvicorn

    listener = stack.enter_context(socket.socket())
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()

    def stop() -> None:
        server.should_exit = True
        thread.join(20)

    stack.callback(stop)
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def wordy_llama(folder: Path, texts: list[str]) -> Path:
    """A tiny random model that reads about four characters a token, and a script of replies."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tiny_llama(folder, seed=3, vocab_size=4096, max_position_embeddings=CONTEXT)
    special = ["<|pad|>", "<|bos|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=4000, special_tokens=special, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = {text: tokenizer.encode(text, add_special_tokens=False).ids
           for pair in CUES.items() for text in pair}
    (folder / "script.json").write_text(json.dumps({
        "rule": "cues", "cues": [[ids[cue], ids[reply]] for cue, reply in CUES.items()],
        "context": CONTEXT,
    }))
    return folder


@pytest.fixture(scope="module")
def talk(
    openclaw_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[System, Gateway, SomeJudge]]:
    folder = tmp_path_factory.mktemp("openclaw")
    docs = sorted((openclaw_dir / "node_modules" / "openclaw" / "docs").glob("*.md"))
    model = wordy_llama(folder / "model", [d.read_text(encoding="utf-8") for d in docs])
    judge = SomeJudge()
    with ExitStack() as stack:
        address = serve(judge.app, stack)
        system = System(
            folder, model, "--openclaw", "worker.kind=scripted", f"worker.context={CONTEXT}",
            "rollout.temperature=0.1", f"train.batch_size={STEP}", "train.max_steps=1",
            "train.max_wait_s=900.0",
            "judge.kind=model", "judge.votes=1",
            f"judge.base_url={address}/v1", "judge.model=judge", "serve.session_idle_s=600.0",
        )
        stack.callback(system.stop)
        system.start()
        gateway = Gateway(openclaw_dir, folder / "gateway", printed_block(system))
        (gateway.workspace / "note.txt").write_text("It stands beside the lighthouse.\n")
        stack.callback(gateway.stop)
        gateway.start()
        yield system, gateway, judge


def printed_block(system: System) -> dict[str, Any]:
    until(lambda: "allowConversationAccess" in system.said(), 30)
    said = system.said()
    return dict(json.JSONDecoder().raw_decode(said, said.index('{\n  "agents"'))[0])


@pytest.fixture(scope="module")
def said(talk: tuple[System, Gateway, SomeJudge]) -> list[str]:
    """Twenty turns; in the middle a version learned from the first ones takes over."""
    system, gateway, _ = talk
    answers = [gateway.say(words) for words in WORDS[: TURNS // 2]]
    assert until(lambda: system.status()["served_version"] >= 1, 180, 0.5), system.status()
    return answers + [gateway.say(words) for words in WORDS[TURNS // 2 :]]


def main_turns(system: System) -> list[Any]:
    """Those of the first conversation."""
    with system.journal() as journal:
        rows = system.rows(
            "SELECT id FROM turns WHERE kind = 'main' AND trace_id = (SELECT trace_id FROM turns"
            " WHERE kind = 'main' ORDER BY created LIMIT 1) ORDER BY created")
        return [journal.turn(row[0]) for row in rows]


def persons_words(turn: Any) -> str:
    """The last message of a person in a turn's request."""
    from claw.engine.actor import speech

    spoken = [m for m in speech.words(turn.messages) if m["role"] == "user"]
    return str(spoken[-1]["content"])


def test_openclaws_own_validator_takes_the_printed_block(talk: Any) -> None:
    _, gateway, _ = talk
    block = json.loads(gateway.block.read_text())
    [served] = block["models"]["providers"]["claw"]["models"]
    assert served["input"] == ["text"]
    served["input"] = ["text", "image"]  # as it is printed for a model that sees
    seeing = gateway.folder / "seeing.json"
    seeing.write_text(json.dumps(block))
    for config in (gateway.block, seeing):
        done = gateway.run("config", "validate", config=config)
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_agent_answers_every_turn_also_with_a_tool(said: list[str]) -> None:
    assert said[0] == CUES[" quizzical"]
    assert said[3] == CUES[" lighthouse"]
    assert said[4] == CUES[" mistaken"]
    assert said[5:] == [CUES[" quizzical"]] * (TURNS - 5)


def test_no_request_is_repeated_and_each_turn_of_the_person_is_captured_once(
    talk: Any, said: list[str]
) -> None:
    system, _, _ = talk
    counted = system.status()["sessions"]
    assert not counted["by"].get("retry") and not counted["by"].get("regenerated")
    turns = main_turns(system)
    for i, words in enumerate(WORDS):
        with_words = [t for t in turns if words in persons_words(t)]
        assert len(with_words) == (2 if i == 3 else 1), words  # the call, and what followed it
    assert len(turns) == TURNS + 1, "all of them in one conversation"
    assert set(counted["named_by"]) <= {"name"}


def test_each_turn_is_followed_by_the_persons_next_words_or_the_tools_result(
    talk: Any, said: list[str]
) -> None:
    turns = main_turns(talk[0])
    by_words = {persons_words(t).split("] ", 1)[1].split("\n")[0]: t for t in reversed(turns)}
    called = by_words[WORDS[3]]
    [result] = called.next_state
    assert result["role"] == "tool" and "lighthouse" in result["content"]
    assert [m["role"] for m in by_words[WORDS[5]].next_state] == ["user"]
    assert WORDS[6] in by_words[WORDS[5]].next_state[0]["content"]


def test_a_correction_is_judged_trained_and_the_new_version_answers(
    talk: Any, said: list[str]
) -> None:
    """The step's own record names the corrected reply, and what the teacher read held the hint."""
    from claw.engine.actor.chat import Chat

    system, gateway, _ = talk
    turns = main_turns(system)
    [corrected] = [t for t in turns if WORDS[4] in json.dumps(t.next_state)]
    assert corrected.reply["content"] == CUES[" lighthouse"]
    [(id, state, lease, version, update)] = system.rows(
        "SELECT s.id, s.state, l.id, l.version, l.body FROM samples s"
        f" JOIN leases l ON l.id = s.lease_id WHERE s.turn_id = '{corrected.id}'")
    assert (state, corrected.status) == ("trained", f"trained:v{version}")
    update = json.loads(update)
    assert (update["step"], update["lease_id"], version) == (1, lease, 1)
    of_step = system.rows(f"SELECT turn_id FROM samples WHERE lease_id = '{lease}'")
    assert len(of_step) == STEP and (corrected.id,) in of_step
    with system.journal() as journal:
        arrays = journal.arrays(id)
    assert (arrays["reply_ids"] == corrected.completion.ids).all()
    assert (arrays["advantages"] == -1.0).all()
    chat = Chat(gateway.folder.parent / "model")
    assert HINT not in chat.decode(arrays["prompt_ids"])
    assert HINT in chat.decode(arrays["hints.0"])
    # what the trainer measured of this very sample, token by token
    assert len(arrays["gap"]) == len(corrected.completion.ids) and arrays["gap"].any()
    assert arrays["chosen"].tolist() == [1.0]
    assert int(turns[0].completion.versions[-1]) == 0
    assert int(turns[-1].completion.versions[-1]) == 1


@pytest.fixture(scope="module")
def spawned(talk: Any, said: list[str]) -> tuple[str, str, str]:
    """A sub-agent that the person's words led to: its conversation, its parent's, the turn."""
    system, gateway, _ = talk
    gateway.say("Please spawnchild for me.", FAMILY)
    assert until(lambda: system.rows("SELECT 1 FROM kin WHERE turn_id != ''"), 120, 1.0)
    [(child, parent, asked_by)] = system.rows("SELECT trace_id, parent, turn_id FROM kin")
    return child, parent, asked_by


def test_a_subagents_turns_are_side_turns_linked_to_the_turn_that_asked(
    talk: Any, spawned: tuple[str, str, str]
) -> None:
    system, _, _ = talk
    child, parent, asked_by = spawned
    with system.journal() as journal:
        spawning = journal.turn(asked_by)
        theirs = [journal.turn(id) for id, _ in journal.turn_ids(child)]
        rules = {journal.render(t.id)["kind"] for t in theirs}
    assert spawning.trace_id == parent and "sessions_spawn" in json.dumps(spawning.reply)
    assert rules == {"side by name: subagent"}
    assert until(lambda: [t.status for t in map(system_turn(system), theirs)]
                 == ["skipped:side"] * len(theirs), 30)
    told = system.claw("why", asked_by, "--run", str(system.run)).stdout
    assert child in told


def test_a_subagents_result_is_answered_and_is_nobodys_word_on_the_reply_before(
    talk: Any, spawned: tuple[str, str, str]
) -> None:
    system, gateway, _ = talk
    sql = ("SELECT t.id FROM turns t WHERE t.render LIKE '%main by text: a sub-agent%'"
           " AND t.state = 'waiting'")
    assert until(lambda: system.rows(sql), 120, 1.0), system.status()["kinds"]
    [(handed_over,)] = system.rows(sql)
    gateway.say("A last quizzical question.", FAMILY)
    after = system_turn(system)(handed_over)
    assert "A last quizzical question." in json.dumps(after.next_state)
    followed = system.rows("SELECT body FROM parts JOIN texts USING(digest) WHERE part = 'next'")
    assert followed and not any("isUser=false" in body for (body,) in followed)


def system_turn(system: System) -> Any:
    """Return what reads a turn as it is now, by the turn or its id."""
    def read(turn: Any) -> Any:
        with system.journal() as journal:
            return journal.turn(turn if isinstance(turn, str) else turn.id)
    return read


def test_the_plugin_says_main_for_a_person_and_what_else_the_other_turns_are(
    talk: Any, said: list[str]
) -> None:
    system, gateway, _ = talk
    probe = gateway.run("infer", "model", "run", "--local", "--model", "claw/claw-policy",
                        "--prompt", "A quizzical probe", "--json")
    assert probe.returncode == 0, probe.stdout + probe.stderr
    assert until(lambda: "side by name: heartbeat" in system.status()["kinds"], 90, 1.0)
    kinds = system.status()["kinds"]
    assert kinds["side by name"] == 1, "the probe"
    assert kinds["main by name"] >= TURNS + 1
    assert set(kinds) <= {"main by name", "main by text: a sub-agent's result", "side by name",
                          "side by name: heartbeat", "side by name: subagent"}, kinds


def test_no_judge_is_shown_internal_context(talk: Any, said: list[str]) -> None:
    _, _, judge = talk
    assert until(lambda: len(judge.prompts) >= TURNS - 1, 60), len(judge.prompts)
    for prompt in judge.prompts:
        assert "OPENCLAW_INTERNAL" not in prompt
        assert "Active Subagents" not in prompt and "Active exec sessions" not in prompt
