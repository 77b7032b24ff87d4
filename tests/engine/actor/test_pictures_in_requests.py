"""Pictures in requests: kept once, shown to workers and the trainer, gone when forgotten."""

import hashlib
from types import SimpleNamespace

import numpy as np
import pytest
from seeing import encoded, image_id, part, picture, processor, prompt
from some_turns import turn
from test_actor_process import WRONG, play, settled  # noqa: F401 (play is a fixture)
from test_desk import look

from claw.engine.actor.album import NAME, Album
from claw.engine.actor.chat import Chat
from claw.engine.actor.journal import NAME as FILE
from claw.engine.actor.journal import Journal
from claw.engine.actor.why import story
from claw.engine.pictures import lens_of
from claw.errors import ClawError
from claw.sdk.app import EngineError

A, B = picture(1), picture(2, 16, 56)
HINT = "Say which window is in front."


@pytest.fixture(scope="session")
def model_dir(tiny_qwen3_vl_dir):
    return tiny_qwen3_vl_dir


@pytest.fixture
def seeing(model_dir):
    """A chat with an album."""
    chat = Chat(model_dir)
    chat.album = Album(lens_of(model_dir), lambda digest: None)
    return chat


@pytest.fixture(scope="session")
def chat(model_dir):
    """Decodes for the fake worker."""
    return Chat(model_dir)


def user(*content):
    return {"role": "user", "content": [
        {"type": "text", "text": c} if isinstance(c, str) else part(c) for c in content]}


def digest(image):
    return hashlib.sha256(encoded(image)).hexdigest()


def taken(chat, *messages):
    return chat.album._taken(messages)


def test_a_prompt_has_the_tokens_that_the_models_processor_writes(seeing, model_dir):
    messages = taken(seeing, user("What is ", A, " and ", B, "?"), {
        "role": "assistant", "content": "Two."}, user("And ", B, "!"))
    found = seeing.prompt(messages)
    wanted = prompt(
        model_dir, "<|im_start|>user\nWhat is ", A, " and ", B, "?<|im_end|>\n<|im_start|>"
        "assistant\nTwo.<|im_end|>\n<|im_start|>user\nAnd ", B, "!<|im_end|>\n<|im_start|>"
        "assistant\n")
    assert found.ids.tolist() == wanted
    assert found.images == (digest(A), digest(B), digest(B))


def test_a_picture_token_in_words_shows_nothing(seeing, model_dir):
    messages = taken(seeing, user("I say <|image_pad|> and show ", A), user("<|image_pad|>"))
    tools = [{"type": "function", "function": {"name": "<|image_pad|>"}}]
    ids = seeing.prompt(messages, tools).ids
    [grid] = processor(model_dir)(images=[A], return_tensors="np")["image_grid_thw"]
    assert (ids == image_id(model_dir)).sum() == np.prod(grid) // 4


def test_a_turn_is_continued_by_its_ids_only_under_the_same_pictures(seeing):
    first = taken(seeing, user("look ", A))
    made = seeing.prompt(first)
    said = seeing.encode("ok<|im_end|>")
    known = seeing.known(made.ids, made.chars, made.digest, said)
    reply = {"role": "assistant", "content": "ok"}
    again = seeing.prompt([*first, reply, *taken(seeing, user("and ", B))], (), known)
    assert again.rule == "append" and again.images == (digest(A), digest(B))
    assert again.ids[: len(known.ids)].tolist() == known.ids.tolist()
    other = seeing.prompt([*taken(seeing, user("look ", picture(9))), reply, user("x")], (), known)
    assert other.rule.startswith("whole: ")


def test_after_a_sampled_picture_token_the_history_is_rendered_anew(seeing, model_dir):
    first = taken(seeing, user("look ", A))
    made = seeing.prompt(first)
    said = np.array([*seeing.encode("ok"), image_id(model_dir)], np.int32)
    known = seeing.known(made.ids, made.chars, made.digest, said)
    raw = {1: seeing.decode(said)}
    again = seeing.prompt(
        [*first, {"role": "assistant", "content": raw[1]}, *taken(seeing, user("and ", B))],
        (), known, raw)
    assert again.rule.startswith("whole") and again.images == (digest(A), digest(B))
    lens = seeing.album.lens
    pixels = [seeing.album.pixels(d) for d in again.images]
    assert (again.ids == image_id(model_dir)).sum() == sum(map(lens.num_tokens, pixels))


def test_a_hinted_prompt_shows_the_same_pictures(seeing, model_dir):
    messages = taken(seeing, user("What is ", A, "?"))
    wanted = prompt(
        model_dir, "<|im_start|>user\nWhat is ", A, f"?\n\n[user's hint / instruction]\n{HINT}"
        "<|im_end|>\n<|im_start|>assistant\n")
    assert seeing.hinted(messages, (), HINT).tolist() == wanted


@pytest.mark.parametrize(("url", "words"), [
    ("https://example.com/a.png", "claw fetches nothing"),
    ("file:///etc/passwd", "claw fetches nothing"),
    (NAME + "0" * 64, "claw fetches nothing"),
    ("data:image/gif;base64,R0lGODdh", "claw fetches nothing"),
    ("data:image/png;base64,@@@@", "no base64"),
    ("data:image/png;base64,aGVsbG8=", "neither PNG nor JPEG"),
    ("data:image/png;base64," + "A" * 23_000_000, "larger than 16 MiB"),
    (None, "is {url: a data URL}"),
])
def test_what_is_no_picture_is_refused_by_its_place(seeing, url, words):
    bad = {"type": "image_url", "image_url": {"url": url}}
    with pytest.raises(EngineError, match=words) as error:
        taken(seeing, user("x ", A), {"role": "user", "content": [bad]})
    assert (error.value.status, error.value.code) == (400, "invalid_image")
    assert error.value.param == "messages[1].content[0].image_url"


def test_more_pictures_than_a_prompt_may_have_are_refused(seeing):
    small = part(picture(1, 16, 16))
    taken(seeing, {"role": "user", "content": [small] * 64})
    with pytest.raises(EngineError, match="more than 64 pictures"):
        taken(seeing, {"role": "user", "content": [small] * 65})


def test_an_album_holds_a_bounded_part_and_the_journal_has_the_rest(model_dir, tmp_path):
    journal = Journal(tmp_path)
    album = Album(lens_of(model_dir), journal.picture, max_bytes=20_000)
    journal.picture_data = album.data
    images = [picture(n, 64, 64) for n in range(4)]
    for n, image in enumerate(images):
        [message] = album._taken([user("x", image)])
        journal.put_turn(turn(f"t{n}", messages=(message, message)))
    assert album.data(digest(images[0])) is None and album.data(digest(images[3]))
    np.testing.assert_array_equal(
        album.pixels(digest(images[0])), album.lens.pixels(encoded(images[0])))
    assert journal.read("SELECT COUNT(*) FROM pictures") == [(4,)]
    [(body,)] = journal.read("SELECT body FROM texts LIMIT 1")
    assert len(body) < 200
    with pytest.raises(ClawError, match="not at hand"):
        journal.put_turn(turn("t9", messages=({"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": NAME + "ab" * 32}}]},)))
    assert journal.turn("t9") is None


def test_forgetting_removes_the_pictures_that_nobody_else_shows(model_dir, tmp_path):
    journal = Journal(tmp_path)
    album = Album(lens_of(model_dir), journal.picture)
    journal.picture_data = album.data
    own, shared = album._taken([user("x", A), user("x", B)])
    journal.put_turn(turn("one", trace_id="t1", messages=(own,), next_state=(shared,)))
    journal.put_turn(turn("two", trace_id="t2", messages=(shared,)))
    assert sorted(journal.pictures_of("t1")) == sorted([digest(A), digest(B)])
    assert any(encoded(A)[:200] in f.read_bytes() for f in tmp_path.glob(FILE + "*"))
    journal.forget("t1")
    assert journal.picture(digest(A)) is None and journal.picture(digest(B)) == encoded(B)
    assert not any(encoded(A)[:200] in f.read_bytes() for f in tmp_path.glob(FILE + "*"))
    journal.forget("t2")
    assert journal.read("SELECT COUNT(*) FROM pictures") == [(0,)]


def test_an_older_journal_takes_pictures_when_it_is_opened(model_dir, tmp_path):
    journal = Journal(tmp_path)
    for name in ("pictures", "shown"):
        journal.read(f"DROP TABLE {name}")
    journal.close()
    journal = Journal(tmp_path)
    assert journal.picture("0" * 64) is None and journal.pictures_of("t") == []


def test_pictures_go_to_the_worker_and_the_trainer_and_are_gone_when_forgotten(
    play, model_dir  # noqa: F811
):
    lens = lens_of(model_dir)
    pixels = [lens.pixels(encoded(A)), lens.pixels(encoded(B))]

    async def run(s: SimpleNamespace):
        first = await s.runner.say([user("What is ", A, "?")])
        assert first.type == "turn.done", first.fields
        await s.runner.say([user("What is ", A, "?"), first["message"], user(WRONG, B)])
        one, two = s.worker.of("generate")
        np.testing.assert_array_equal(one.arrays["pictures.0"], pixels[0])
        assert [two["pictures"], len(two.arrays)] == [2, 3]
        for n, wanted in enumerate(pixels):
            np.testing.assert_array_equal(two.arrays[f"pictures.{n}"], wanted)
        lens.places(two.arrays["prompt_ids"], pixels)
        lease, [sample], _ = await s.trainer.lease()
        assert sample.images == (digest(A),)
        np.testing.assert_array_equal(sample.pictures[0], pixels[0])
        await s.trainer.ack(lease, 1, path=str(s.run_dir))
        status = await s.runner.question("status")
        assert status["takes_pictures"] is True
        bad = await s.runner.say([{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}}]}])
        assert (bad.type, bad["status"], bad["code"]) == ("turn.error", 400, "invalid_image")
        journal = Journal(s.run_dir, read_only=True)
        stored = journal.turn(first["turn_id"])
        assert stored.images == (digest(A),) and "base64" not in str(stored)
        assert journal.picture(digest(A)) == encoded(A)
        told = await look(s, "turn", id=first["turn_id"])
        assert told["request_messages"][0]["pictures"] == [digest(A)]
        assert told["next_state"][0]["pictures"] == [digest(B)]
        assert (await look(s, "picture", id=digest(A)))["data"] == encoded(A)
        others = await look(s, "picture", id=digest(A), owner="other")
        assert (others["status"], others["code"]) == (404, "not_found")
        lines = story(s.run_dir, first["turn_id"])
        assert f"  user: What is ? [picture {digest(A)[:12]}]" in lines
        await s.runner.question("forget", session=first["trace_id"])
        assert journal.read("SELECT COUNT(*) FROM pictures") == [(0,)]
        journal.close()

    play(run)
    assert not any(encoded(A)[:200] in f.read_bytes() for f in play.dir.glob(FILE + "*"))


def test_a_worker_that_sees_nothing_makes_it_a_text_model(play):  # noqa: F811
    async def run(s):
        got = await s.runner.say([user("What is ", A, "?")])
        assert (got.type, got["status"], got["code"]) == ("turn.error", 400, "unsupported_content")
        assert "this model takes text only" in got["message"]
        status = await s.runner.question("status")
        assert status["takes_pictures"] is False

    play(run, worker__kind="scripted")
