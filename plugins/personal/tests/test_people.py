"""Simulated people judge taste and topic apart, speak in words, and stay reproducible."""

import re

import pytest
from claw_env_personal.people import (
    PEOPLE,
    TASTES,
    Question,
    correct,
    facts,
    on_topic,
    person,
    questions,
)
from claw_env_personal.people.people import CLASHES, OFF_TOPIC, UNANSWERED, WISHES, Person
from claw_env_personal.people.tastes import num_sentences, words
from claw_env_personal.people.topic import degenerate, word_has_stem

STEMS = ("soil", "seed", "water", "sun", "plant")
TOMATO = Question("x1", "talk", "How do I grow tomatoes?", STEMS)
GOOD = "Plant the seeds in rich soil and keep them in the sun. Water them every other day."


def test_two_plain_sentences_meet_the_plain_taste():
    assert TASTES["plain"](GOOD)


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "One. Two. Three.",
        "1. Buy seeds.\n2. Plant them.",
        "- Buy seeds.",
        "**Soil** matters most.",
        "# Tomatoes\nUse soil.",
        "This one just stops in the",
    ],
)
def test_lists_markup_length_and_unfinished_replies_miss_the_plain_taste(reply):
    assert not TASTES["plain"](reply)


def test_a_decimal_number_does_not_end_a_sentence():
    assert num_sentences("Use 2.5 cups of water. Stir!") == 2


def test_structured_wants_a_list_with_something_in_it():
    long_list = "\n".join(f"{i}. Water the plants and look at their leaves" for i in range(1, 5))
    assert TASTES["structured"](long_list)
    assert not TASTES["structured"]("1. Water.\n2. Wait.")
    assert not TASTES["structured"](GOOD)


def test_friendly_wants_a_warm_phrase_as_whole_words():
    assert TASTES["friendly"]("I\u2019m happy to help! Use soil.")
    assert not TASTES["friendly"]("It is an enjoyment tax. Use soil.")


def test_the_papers_three_people_look_at_marks_length_and_warmth():
    boxed = "So the answer is \\boxed{4}."
    assert TASTES["student"](GOOD) and not TASTES["student"](boxed)
    assert TASTES["ta"]("word " * 100) and not TASTES["ta"](GOOD)
    assert TASTES["teacher"]("Great job! Go on.") and not TASTES["teacher"]("**Great job!**")


def test_a_refusal_that_meets_the_taste_is_not_an_answer():
    refusal = "You can't grow tomatoes."
    assert TASTES["plain"](refusal)
    assert not on_topic(TOMATO, refusal)
    assert on_topic(TOMATO, GOOD)


@pytest.mark.parametrize("question", questions("talk") + questions("held"), ids=lambda q: q.id)
def test_repeating_a_question_is_not_an_answer(question):
    assert not on_topic(question, f"You are asking me this now: {question.text}")
    assert len(question.topic) >= 5


def test_degenerate_text_is_off_topic():
    loop = "water the soil " * 5
    assert degenerate(loop) and not on_topic(TOMATO, loop)
    assert not degenerate(GOOD)


def test_short_stems_match_whole_words_only():
    assert word_has_stem("apps", "app") and not word_has_stem("apple", "app")
    assert word_has_stem("watering", "water")


def test_talk_and_held_questions_are_disjoint_in_text_and_subject():
    small = set(words("a an the i my how do can what should make choose keep learn get"))
    small |= set(
        words("why we people need have made of to in for is good on at with start clean teach or")
    )
    talk = {w for q in questions("talk") for w in words(q.text)} - small
    shared = [q.text for q in questions("held") if len(set(words(q.text)) & talk) > 2]
    assert not shared
    assert len(questions("talk")) >= 80 and len(questions("held")) >= 24


def test_facts_are_many_answerable_and_do_not_give_themselves_away():
    assert len(facts()) >= 160
    for fact in facts():
        assert correct(fact, f"It is {fact.answers[0].upper()}.")
        assert not correct(fact, fact.text)


def test_a_fact_is_matched_on_word_boundaries():
    four = next(f for f in facts() if f.answers == ("4", "four"))
    assert correct(four, "2 + 2 = 4.") and not correct(four, "It is 42.")


@pytest.mark.parametrize("name", PEOPLE)
def test_a_displeased_person_corrects_in_words_then_gives_up(name):
    one = person(name, seed=3)
    question = one.ask(0)
    first = one.react(question, "No.")
    assert isinstance(first, str) and len(first) > 10
    assert one.react(question, "No.") is None


def test_a_pleased_person_thanks_and_an_unanswered_one_says_so():
    one = person("plain")
    assert "than" in one.react(TOMATO, GOOD).lower()
    assert one.react(TOMATO, "You can't grow tomatoes.") in OFF_TOPIC


def test_an_unanswered_person_of_another_taste_asks_for_that_taste_again():
    wish = person("bullets").react(TOMATO, "- You can't.\n- Not ever so.")
    assert any(w in wish for w in UNANSWERED) and any(w in wish for w in WISHES["bullets"])


def test_one_sentence_is_single_and_two_lines_of_points_are_bullets():
    assert TASTES["single"]("Plants need water and light to grow.")
    assert not TASTES["single"]("They need water. They need light too.")
    assert not TASTES["single"]("Water.")
    assert TASTES["bullets"]("- Water them.\n- Wait.") and TASTES["bullets"]("1. Water.\n2. Wait.")
    assert not TASTES["bullets"]("- Water them and wait.")


def test_every_taste_has_eight_wordings_that_name_what_is_wanted():
    wanted = {
        "plain": "sentences",
        "single": "one .*sentence|one, no list",
        "bullets": "list|bullet points",
        "structured": "list|number|step",
        "friendly": "friend|warm|kind|happy",
        "student": "bold|plain",
        "ta": "detail|more|length|long",
        "teacher": "!|warm|kind|happy|Good luck",
    }
    for taste, wishes in WISHES.items():
        assert len(set(wishes)) >= 8
        assert all(re.search(wanted[taste], wish, re.I) for wish in wishes)


def test_the_same_seed_asks_and_says_the_same():
    def run(seed):
        one = person("plain", seed)
        return [(q.id, one.react(q, "No.")) for q in map(one.ask, range(20))]

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert len({question for question, _ in run(1)}) == 20


def test_a_joint_taste_asks_for_everything_that_is_missing():
    one = Person("both", "plain+friendly")
    wish = one.react(one.ask(0), "A. B. C.")
    assert any(w in wish for w in WISHES["plain"]) and any(w in wish for w in WISHES["friendly"])


@pytest.mark.parametrize("clash", CLASHES, ids=lambda clash: "+".join(sorted(clash)))
def test_tastes_that_no_reply_can_meet_are_refused(clash):
    with pytest.raises(ValueError, match="no reply can be both"):
        Person("torn", "+".join(sorted(clash)))


def test_an_unknown_person_is_refused_with_the_known_names():
    with pytest.raises(ValueError, match="plain"):
        person("nobody")
