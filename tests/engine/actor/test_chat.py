"""Messages and token ids: like transformers, append-only, never half a character."""

import asyncio
import time
from itertools import pairwise

import numpy as np
import pytest
from actor_doubles import CHATML, INDENTED, STRIPS_THINKING, TRIMS, WITH_TOOLS, make_model

from claw.engine.actor import parse
from claw.engine.actor.chat import Chat
from claw.errors import ClawError
from claw.records import FinishReason

TOOLS = [{"type": "function", "function": {"name": "ls", "description": "lists; \u00fcber <b>",
                                           "parameters": {"type": "object", "properties": {}}}}]
CONVERSATIONS = [
    [{"role": "user", "content": "hi"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " \u00fcber\n\n"}],
    [{"role": "user", "content": "a"},
     {"role": "assistant", "content": "b \U0001f469\u200d\U0001f467"},
     {"role": "user", "content": "12345 <|im_end|> 'quoted' \x00"}],
]


def user(text):
    return {"role": "user", "content": text}


def said(text):
    return {"role": "assistant", "content": text}


def reply_of(chat, prompt, text, stop="<|im_end|>"):
    """Return (what is known after a reply, its ids)."""
    ids = chat.encode(text + stop)
    return chat.known(prompt.ids, prompt.chars, prompt.digest, ids), ids


@pytest.mark.parametrize("template", [CHATML, INDENTED, TRIMS, WITH_TOOLS])
@pytest.mark.parametrize("tools", [[], TOOLS])
def test_prompts_are_those_of_transformers(tmp_path, template, tools):
    transformers = pytest.importorskip("transformers", reason="compares with transformers")
    folder = make_model(tmp_path, template)
    chat = Chat(folder)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    for messages in CONVERSATIONS:
        wanted = theirs.apply_chat_template(messages, tools=tools or None, return_dict=False,
                                            add_generation_prompt=True)
        assert chat.prompt(messages, tools).ids.tolist() == list(wanted)


@pytest.mark.real
def test_prompts_of_the_real_small_model_are_those_of_transformers(smollm2_dir):
    transformers = pytest.importorskip("transformers", reason="compares with transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(smollm2_dir)
    chat = Chat(smollm2_dir)
    for messages in CONVERSATIONS:
        wanted = theirs.apply_chat_template(messages, add_generation_prompt=True,
                                            return_dict=False)
        assert chat.prompt(messages).ids.tolist() == list(wanted)
    assert chat.stop_ids == (2,)


def test_three_turns_keep_every_known_id(chat):
    messages = [user("one")]
    prompt = chat.prompt(messages)
    # the ids of this reply are not those that its text is tokenised to
    odd = np.array([chat.tokenizer.token_to_id(c) for c in "alpha"] + [3], np.int32)
    assert len(chat.encode("alpha")) == 4
    for text in ("two", "three"):
        known = chat.known(prompt.ids, prompt.chars, prompt.digest, odd)
        messages += [said("alpha"), user(text)]
        after = chat.prompt(messages, known=known, raw={})
        assert after.rule == "append"
        assert after.ids[: len(known.ids)].tolist() == known.ids.tolist()
        added = chat.decode(after.ids[len(known.ids) :])
        assert added == f"\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
        prompt = after


def test_a_reply_that_the_client_trimmed_still_continues(tmp_path):
    chat = Chat(make_model(tmp_path, TRIMS))
    prompt = chat.prompt([user("one")])
    known, _ = reply_of(chat, prompt, "  spaced \n")
    messages = [user("one"), said("spaced"), user("two")]
    after = chat.prompt(messages, known=known, raw={1: "  spaced \n"})
    assert after.rule == "append" and after.ids[: len(known.ids)].tolist() == known.ids.tolist()


def test_a_reply_cut_by_max_tokens_continues_with_the_end_of_turn_added(chat):
    prompt = chat.prompt([user("one")])
    known, _ = reply_of(chat, prompt, "cut in the mid", stop="")
    after = chat.prompt([user("one"), said("cut in the mid"), user("two")], known=known)
    assert after.rule == "append"
    assert chat.decode(after.ids[len(known.ids) :]).startswith("<|im_end|>\n<|im_start|>user")


def test_a_template_that_strips_thinking_makes_a_branch(tmp_path):
    chat = Chat(make_model(tmp_path, STRIPS_THINKING))
    prompt = chat.prompt([user("one")])
    raw = "<think>hm</think>answer"
    known, _ = reply_of(chat, prompt, raw)
    messages = [user("one"), said("answer"), user("two")]
    after = chat.prompt(messages, known=known, raw={1: raw})
    assert after.rule == "whole: the template changes the history"
    assert after.ids.tolist() == chat.prompt(messages).ids.tolist()


LOOPS_LAST = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% if message.role == 'tool' %}{{ ' (new)' if loop.last else ' (old)' }}{% endif %}"
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_a_template_that_marks_the_last_tool_result_is_rendered_anew_when_it_is_not_last(tmp_path):
    chat = Chat(make_model(tmp_path, LOOPS_LAST))
    messages = [user("look"), said("I look."), {"role": "tool", "content": "bin"}]
    prompt = chat.prompt(messages)
    assert "bin (new)" in chat.decode(prompt.ids)
    known, _ = reply_of(chat, prompt, "One file.")
    longer = [*messages, said("One file."), user("sure?")]
    after = chat.prompt(longer, known=known, raw={3: "One file."})
    assert after.rule == "whole: the template changes the history"
    assert after.ids.tolist() == chat.encode(chat.render(longer)).tolist()
    assert "bin (old)" in chat.decode(after.ids)


def test_an_edited_history_is_rendered_anew(chat):
    prompt = chat.prompt([user("one")])
    known, _ = reply_of(chat, prompt, "answer")
    after = chat.prompt([user("ONE"), said("answer"), user("two")], known=known)
    assert after.rule.startswith("whole:")


def test_a_tool_loop_keeps_the_sampled_call_though_the_template_writes_it_otherwise(tmp_path):
    chat = Chat(make_model(tmp_path, WITH_TOOLS))
    prompt = chat.prompt([user("look")], TOOLS)
    raw = '<tool_call>{"arguments": {}, "name": "ls"}</tool_call>'
    known, _ = reply_of(chat, prompt, raw)
    message, finish = parse.reply(raw, chat.markup(TOOLS, False), FinishReason.STOP)
    assert finish is FinishReason.TOOL_CALLS and message["content"] is None
    result = {"role": "tool", "tool_call_id": "x", "content": "bin"}
    after = chat.prompt([user("look"), message, result], TOOLS, known=known, raw={1: raw})
    assert after.rule == "append"
    without = chat.prompt([user("look"), message, result], TOOLS)
    assert '"name": "ls"' in chat.decode(without.ids)


def test_tool_calls_stay_in_the_history_of_templates_that_know_none(chat):
    call = {"id": "a", "type": "function", "function": {"name": "ls", "arguments": '{"p": 1}'}}
    messages = [user("x"), {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "a", "content": "ok"}]
    text = chat.render(messages)
    assert '<tool_call>\n{"name": "ls", "arguments": {"p": 1}}\n</tool_call>' in text
    assert "None" not in text


def test_lone_surrogates_are_replaced_only_for_the_tokenizer(chat):
    messages = [user("a \ud83c b \udc9d c \ud83d\ude42 \x00")]
    text = chat.decode(chat.prompt(messages).ids)
    assert "a \ufffd b \ufffd c \U0001f642 \x00" in text
    assert messages == [user("a \ud83c b \udc9d c \ud83d\ude42 \x00")]


def test_a_hint_goes_to_the_end_of_the_last_user_message(chat):
    messages = [user("first"), said("r"), user("second"), {"role": "tool", "content": "t"}]
    text = chat.decode(chat.hinted(messages, [], "Be brief."))
    assert "second\n\n[user's hint / instruction]\nBe brief.<|im_end|>" in text
    only = chat.decode(chat.hinted([{"role": "system", "content": "s"}], [], "Be brief."))
    assert "s\n\n[user's hint / instruction]\nBe brief.<|im_end|>" in only
    assert messages[2] == user("second")


def test_emoji_split_over_tokens_come_out_whole(chat):
    text = "a \U0001f469\u200d\U0001f469\u200d\U0001f467 \u00fc."
    ids = chat.encode(text)
    assert len(ids) > len(text)
    for step in (1, 2, 3, 7):
        detok, pieces = chat.detokeniser(), []
        for start in range(0, len(ids), step):
            pieces.append(detok.add(ids[start : start + step]))
        assert "".join(pieces) + detok.end() == text
        assert not any("\ufffd" in piece for piece in pieces)


def test_a_character_cut_at_the_end_is_one_replacement(chat):
    ids = chat.encode("ok \U0001f642")[:-1]
    detok = chat.detokeniser()
    assert detok.add(ids) == "ok "
    assert set(detok.end()) == {"\ufffd"}


def test_bytes_that_are_no_text_do_not_hold_up_the_stream(chat):
    bad = [int(chat.encode("\u00e9")[0])] * 40
    detok = chat.detokeniser()
    assert sum(len(detok.add([id])) for id in bad) >= 20


def test_a_model_without_a_template_is_refused_in_words(tmp_path):
    with pytest.raises(ClawError, match="no chat template") as error:
        Chat(make_model(tmp_path, ""))
    assert "Instruct" in str(error.value)


def test_a_long_prompt_in_a_thread_leaves_the_loop_free(chat):
    async def main():
        messages = [user("word " * 20_000)]
        work = asyncio.create_task(asyncio.to_thread(chat.prompt, messages))
        ticks = [time.monotonic()]
        while not work.done():
            await asyncio.sleep(0.002)
            ticks.append(time.monotonic())
        gaps = [b - a for a, b in pairwise(ticks)]
        return max(gaps) / (ticks[-1] - ticks[0]), len(work.result().ids)

    longest, num_tokens = asyncio.run(main())
    assert num_tokens > 100_000 and longest < 0.7, "the loop stood still while ids were made"


HERMES = parse.Markup("hermes", True)


@pytest.mark.parametrize(("text", "content", "names", "finish"), [
    ("plain", "plain", [], "stop"),
    ('Sure.\n<tool_call>\n{"name": "a", "arguments": {"x": 1}}\n</tool_call>', "Sure.\n", ["a"],
     "tool_calls"),
    ('<tool_call>{"name": "a", "arguments": {}}</tool_call>\n'
     '<tool_call>{"name": "b", "arguments": "{}"}</tool_call>', None, ["a", "b"], "tool_calls"),
    ('<tool_call>{"name": "a", "arguments": {</tool_call>',
     '<tool_call>{"name": "a", "arguments": {</tool_call>', [], "stop"),
    ('<tool_call>{"name": 3, "arguments": {}}</tool_call>',
     '<tool_call>{"name": 3, "arguments": {}}</tool_call>', [], "stop"),
    ('x <tool_call>{"name": "a", "arguments": {"path": "/tmp/a", "content": "',
     'x <tool_call>{"name": "a", "arguments": {"path": "/tmp/a", "content": "', [], "stop"),
])
def test_well_formed_calls_are_taken_and_others_stay_text(text, content, names, finish):
    message, said_finish = parse.reply(text, HERMES, FinishReason.STOP)
    calls = message.get("tool_calls", [])
    assert (message["content"], [c["function"]["name"] for c in calls]) == (content, names)
    assert str(said_finish) == finish
    assert all(c["id"].isalnum() for c in calls)


def test_a_truncated_reply_stays_length_whatever_calls_it_has():
    text = '<tool_call>{"name": "a", "arguments": {}}</tool_call> and <tool_call>{"na'
    assert parse.reply(text, HERMES, FinishReason.LENGTH)[1] is FinishReason.LENGTH


def test_llama_calls_are_whole_replies():
    llama = parse.Markup("llama")
    message, _ = parse.reply('<|python_tag|>{"name": "a", "parameters": {"x": 1}}', llama,
                             FinishReason.STOP)
    assert message["tool_calls"][0]["function"]["arguments"] == '{"x": 1}'
    message, _ = parse.reply('{"answer": 42}', llama, FinishReason.STOP)
    assert message["content"] == '{"answer": 42}' and "tool_calls" not in message


def test_thinking_is_split_from_the_answer():
    message, _ = parse.reply("<think>\nhm\n</think>\n\nyes", HERMES, FinishReason.STOP)
    assert (message["reasoning_content"], message["content"]) == ("hm", "yes")
    message, _ = parse.reply("hm</think>yes", parse.Markup("", True, True), FinishReason.STOP)
    assert (message["reasoning_content"], message["content"]) == ("hm", "yes")


@pytest.mark.parametrize("text", [
    "plain text", "<think>hm</think>\n\nyes", "Sure. <tool_call>{}</tool_call>",
    'a <b> <tool <tool_call>{"name": "x", "arguments": {}}</tool_call>tail',
])
def test_what_streams_is_always_the_start_of_what_is_said_at_the_end(text):
    whole = parse.reply(text, HERMES, FinishReason.STOP)[0]["content"] or ""
    for n in range(len(text) + 1):
        assert whole.startswith(parse.visible(text[:n], HERMES))


@pytest.mark.parametrize(("starts_thinking", "text"), [
    (False, "<think>\nhm, <b>\n\nwell\n</think>\n\nyes"), (True, "hm </thin\n</think>yes"),
    (False, "<think>never ends"), (False, "<thinker> is a word"), (True, "<think>twice</think>x"),
    (False, "yes"), (True, ""),
])
def test_what_streams_of_the_thinking_is_always_the_start_of_all_of_it(starts_thinking, text):
    markup = parse.Markup("hermes", True, starts_thinking)
    whole = parse.reply(text, markup, FinishReason.STOP)[0].get("reasoning_content") or ""
    shown = [parse.thought(text[:n], markup) for n in range(len(text) + 1)]
    assert all(whole.startswith(part) for part in shown)
    assert shown[-1] == whole
    assert sorted(map(len, shown)) == list(map(len, shown))
