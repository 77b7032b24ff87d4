"""Fixed questions and answers, in no training set of ours: what a version must not unlearn.

Owns: the texts and their token ids. Does not own: the comparison (gate).
"""

from pathlib import Path

import numpy as np

from claw.engine.trainer.batch import Pair

CANARY_TEXTS, CANARY_LENGTH = 4, 32
"""sequences of the identity canary, and the longest of them in tokens"""

TEXTS = (
    ("What is the capital of France?", "The capital of France is Paris."),
    ("How many days are in a week?", "There are seven days in a week."),
    ("What do bees make?", "Bees make honey from the nectar of flowers."),
    ("Why is the sky blue?",
     "Air scatters blue light more strongly than red light, so the sky looks blue."),
    ("What is 12 plus 30?", "12 plus 30 is 42."),
    ("Name three primary colors.", "Three primary colors are red, blue and yellow."),
    ("Write a sentence about rain.", "The rain fell softly on the roof all night."),
    ("What is a noun?", "A noun is a word that names a person, a place, a thing or an idea."),
    ("How do I boil an egg?",
     "Put the egg in boiling water for about eight minutes, then cool it in cold water."),
    ("What language is spoken in Brazil?", "Most people in Brazil speak Portuguese."),
    ("Explain what a computer does.",
     "A computer follows instructions to store, change and show information."),
    ("What comes after Monday?", "Tuesday comes after Monday."),
    ("Who wrote Romeo and Juliet?", "William Shakespeare wrote Romeo and Juliet."),
    ("At what temperature does water freeze?",
     "Water freezes at 0 degrees Celsius, which is 32 degrees Fahrenheit."),
    ("Give me a synonym for happy.", "A synonym for happy is joyful."),
    ("Can you help me plan a trip?",
     "Of course! Where would you like to go, and how many days do you have?"),
    ("How do I print hello in Python?", "You can write print(\"hello\") and run the file."),
    ("Thank you for your help.", "You're welcome! Let me know if you need anything else."),
)


def encode(model_dir: str | Path) -> list[Pair]:
    """Each question in the model's chat template, and its answer, as token ids."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(model_dir), local_files_only=True)

    def ids(text: str) -> np.ndarray:
        found = tokenizer(text, add_special_tokens=False)["input_ids"]
        return np.asarray(found, dtype=np.int32)

    def prompt(question: str) -> str:
        if not tokenizer.chat_template:
            return f"Question: {question}\nAnswer:"
        return tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True
        )

    return [(ids(prompt(question)), ids(answer)) for question, answer in TEXTS]


def canary(pairs: list[Pair]) -> np.ndarray:
    """int32 [n, L]: the first texts, cut to one length."""
    rows = [np.concatenate(pair) for pair in pairs[:CANARY_TEXTS]]
    length = min(CANARY_LENGTH, *(len(row) for row in rows))
    return np.stack([row[-length:] for row in rows]).astype(np.int32)
