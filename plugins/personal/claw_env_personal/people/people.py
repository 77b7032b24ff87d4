"""Simulated people: scripted, seeded, each with a taste; they ask, correct in words, and move on.

They stand in for a person in demos and measurements; they judge surface and topic, not truth.
"""

import random
from dataclasses import dataclass, field

from .tastes import TASTES
from .topic import Question, on_topic, questions

CLASHES = (
    {"plain", "structured"},
    {"plain", "bullets"},
    {"single", "bullets"},
    {"single", "structured"},
    {"single", "ta"},
    {"plain", "ta"},
    {"structured", "student"},
)

# What a person says when a reply misses the taste. Every sentence names what is wanted.
WISHES: dict[str, tuple[str, ...]] = {
    "plain": (
        "Be brief: write two full sentences, no list.",
        "Be brief, please: write only two full sentences, no list.",
        "Please answer in two sentences.",
        "Too long for me. Be brief: write two full sentences.",
        "Please answer in two full sentences, no list.",
        "That was too much. Be brief: write two full sentences.",
        "Keep it brief, please: write two full sentences, no list.",
        "Shorter, please: answer in two full sentences, no list.",
        "I do not want a list. Be brief: write two full sentences.",
        "Please be brief and answer in two full sentences.",
    ),
    "single": (
        "Answer in one sentence.",
        "Write one full sentence, no list.",
        "Be brief: one full sentence.",
        "One sentence is enough for me, please.",
        "Too long. Please answer in one full sentence.",
        "Keep it to one sentence, please.",
        "Shorter, please: one full sentence, no list.",
        "I only read one sentence. Write one, no list.",
    ),
    "bullets": (
        "Write a bulleted list with dashes.",
        "Answer with a short list of bullet points.",
        "Please write it as a list of short bullet points.",
        "I read lists more easily. Answer with bullet points.",
        "Make it a short list, one point per line.",
        "Give me bullet points, please.",
        "Not as a paragraph. Write a short list of bullet points.",
        "A list, please: one short point on each line.",
    ),
    "structured": (
        "Write it as a numbered list of steps.",
        "I would like a list. Write the steps one per line, with numbers.",
        "Please give me a numbered list with a few short steps.",
        "That is hard to follow. Write numbered steps, one per line.",
        "Make it a step-by-step list, numbered 1, 2, 3.",
        "Please use a numbered list, one step on each line.",
        "Not as a paragraph, please. List the steps with numbers.",
        "I read lists more easily. Write a numbered list of the steps.",
    ),
    "friendly": (
        'Be friendly. Start with "Great question!" and then answer.',
        'That sounds cold. Begin with "Great question!" and be warm.',
        'A warmer tone, please: start with "I\'m happy to help!"',
        'Please be friendlier. Start with "Happy to help!" and then answer.',
        'Talk to me like a friend. Start with "Great question!"',
        'A little kindness, please. End with "Good luck and have fun!"',
        'Be warm and cheerful. Start by saying "Great question!"',
        "That is too dry. Say that you are happy to help, then answer.",
    ),
    "student": (
        "Write it like a student would by hand: no bold and no numbered list.",
        "It looks like a machine wrote it. Use plain paragraphs, no bold, no numbers.",
        "No bold and no numbered lists, please. Just plain paragraphs.",
        "Please write ordinary paragraphs, without bold or numbered steps.",
        "I can't hand that in. Plain text only, no bold, no numbered list.",
        "Drop the bold and the numbers. Write it in your own plain words.",
        "Make it natural: a plain paragraph, no numbered list, no bold.",
        "Just a normal paragraph, please, with no bold and no numbering.",
    ),
    "ta": (
        "That is too thin. Explain it in detail, in plain text without bold.",
        "Please write more: at least a hundred words, no bold.",
        "I need more detail. Write a long, plain explanation without bold.",
        "Explain every step at length, in plain text, no bold.",
        "Too short for me. Give a full and detailed answer without bold.",
        "Say more about it: a detailed answer in plain text, no bold.",
        "Please be thorough. Write a long answer, without bold or headings.",
        "More detail, please, and no bold text.",
    ),
    "teacher": (
        'Be warmer. Start with "Great question!" and use no bold.',
        'That sounds cold. Say "Well done" or "Good luck", and use no bold.',
        'Please be encouraging: start with "Great question!", in plain text.',
        'A kinder tone, please. Say "Great job!" and leave out the bold.',
        'Write as to a child you like: "Great question!", no bold text.',
        'More warmth, please. End with "Good luck and have fun!", no bold.',
        'Encourage me a little. Start with "Great question!" and use plain text.',
        'Be friendly and plain: say "I\'m happy to help", no bold.',
    ),
}

# Said when the taste is met but the question is not answered.
OFF_TOPIC = (
    "That does not answer my question. Answer it in two full sentences.",
    "You did not answer me. Say the most important thing in two full sentences.",
    "I asked something else. Answer the question itself in two full sentences.",
    "That does not help. Tell me in two full sentences what I asked about.",
)

UNANSWERED = (
    "That does not answer my question.",
    "You did not answer me.",
    "I asked something else.",
    "That does not help, answer the question itself.",
)
"""the same where no number of sentences is wanted; a wish of the taste follows"""

THANKS = (
    "Thanks, that is what I wanted.",
    "Perfect, thank you.",
    "Great, thanks!",
    "Good, just how I like it. Thank you.",
    "Thank you, that helps.",
    "Lovely, thanks. That is all.",
)


@dataclass
class Person:
    """One simulated person; `taste` is a name, or several joined with `+`.

    State is only the random source and how often the running question was corrected, so one
    person holds one conversation at a time. The same seed and replies give the same words.
    """

    name: str
    taste: str
    seed: int = 0
    patience: int = 1
    _random: random.Random = field(init=False, repr=False)
    _order: list[Question] = field(init=False, repr=False)
    _current: str = field(init=False, repr=False, default="")
    _corrections: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        check_taste(self.taste)
        self._random = random.Random(f"{self.name}/{self.taste}/{self.seed}")
        self._order = self._random.sample(questions("talk"), len(questions("talk")))

    def ask(self, i: int) -> Question:
        """The i-th question of this person; fresh until the talk questions run out.

        Each conversation has its own random source: its words do not depend on the others.
        """
        self._random = random.Random(f"{self.name}/{self.taste}/{self.seed}/{i}")
        question = self._order[i % len(self._order)]
        self._current, self._corrections = question.id, 0
        return question

    def unmet(self, reply: str) -> list[str]:
        """The parts of the taste that a reply misses."""
        return [part for part in self.taste.split("+") if not TASTES[part](reply)]

    def is_hit(self, question: Question, reply: str) -> bool:
        """The reply meets the whole taste and answers the question."""
        return not self.unmet(reply) and on_topic(question, reply)

    def react(self, question: Question, reply: str) -> str | None:
        """Thanks for a hit, a correction otherwise, None once `patience` corrections are spent."""
        if question.id != self._current:
            self._current, self._corrections = question.id, 0
        if self.is_hit(question, reply):
            return self._random.choice(THANKS)
        if self._corrections >= self.patience:
            return None
        self._corrections += 1
        return self._correction(self.unmet(reply))

    def _correction(self, unmet: list[str]) -> str:
        """One wish for each missed part; a reply that only misses the question is told so."""
        parts = self.taste.split("+")
        if not unmet and "plain" in parts:
            return self._random.choice(OFF_TOPIC)
        said = [] if unmet else [self._random.choice(UNANSWERED)]
        return " ".join(said + [self._random.choice(WISHES[part]) for part in unmet or parts])


def check_taste(taste: str) -> None:
    """Refuse unknown tastes and joint tastes that no reply can meet."""
    parts = taste.split("+")
    unknown = [part for part in parts if part not in TASTES]
    if unknown:
        raise ValueError(f"unknown taste {unknown[0]!r}; choose from {', '.join(TASTES)}")
    for clash in CLASHES:
        if clash <= set(parts):
            raise ValueError(f"no reply can be both {' and '.join(sorted(clash))}; drop one")


PEOPLE: dict[str, str] = {
    "plain": "plain",
    "single": "single",
    "bullets": "bullets",
    "structured": "structured",
    "friendly": "friendly",
    "student": "student",
    "ta": "ta",
    "teacher": "teacher",
    "plain-friendly": "plain+friendly",
}


def person(name: str, seed: int = 0) -> Person:
    """One of the ready-made people by name."""
    if name not in PEOPLE:
        raise ValueError(f"nobody is called {name!r}; choose from {', '.join(PEOPLE)}")
    return Person(name, PEOPLE[name], seed)
