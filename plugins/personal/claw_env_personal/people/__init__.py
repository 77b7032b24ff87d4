"""Simulated people: what they ask, what they want, how they correct; and what must not be lost."""

from .facts import Fact, correct, facts
from .people import PEOPLE, Person, person
from .tastes import TASTES
from .topic import Question, on_topic, questions

__all__ = [
    "PEOPLE",
    "TASTES",
    "Fact",
    "Person",
    "Question",
    "correct",
    "facts",
    "on_topic",
    "person",
    "questions",
]
