"""The prompts that drafts are asked for with: shipped in Korean and English, or files of the user.

A paragraph of a prompt that is about an empty value, such as {examples} without examples, is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness.data.files import text_file
from harness.errors import BadInput
from harness.llm.structured import MOST, PromptText, read_prompt
from harness.testset.judge.sampling import picked

SHIPPED = Path(__file__).parents[1] / "prompts"
# Places of a prompt about a document, and of one about none: those that it must have, and those that it may have.
ABOUT_A_DOCUMENT = (("questions", "text"), ("note", "examples"))
ABOUT_NONE = (("questions", "situation"), ("examples",))


def read_prompts(kinds: Sequence[str], language: str, files: Mapping[str, str | None]) -> dict[str, PromptText]:
    """The prompt of each kind of query.

    language: ko or en, of the shipped prompts. files: kind -> a file to use instead of the shipped one, or None.
    """
    found = {}
    for kind in kinds:
        given = files[kind]
        path = Path(given) if given else SHIPPED / language / f"{kind}.txt"
        needed, optional = ABOUT_NONE if kind == "none" else ABOUT_A_DOCUMENT
        found[kind] = read_prompt(path, needed, optional, f"prompts.{kind}" if given else "")
    return found


def check_examples(prompts: Mapping[str, PromptText]) -> None:
    """BadInput where a prompt has no place for the examples that the user gives."""
    for kind, prompt in prompts.items():
        if "examples" not in prompt.places:
            raise BadInput(
                f"prompts.{kind} has no {{examples}}, so that examples=FILE would change nothing there. Put "
                "{examples} into the prompt, or leave out examples."
            )


def fill_prompt(prompt: PromptText, values: Mapping[str, str]) -> str:
    """The text of a request. values: of all places; a paragraph whose places are all empty is left out."""

    def empty(paragraph: str) -> bool:
        found = [value for name, value in values.items() if f"{{{name}}}" in paragraph]
        return bool(found) and not any(found)

    kept = [paragraph for paragraph in re.split(r"\n{2,}", prompt.text) if not empty(paragraph)]
    return replace(prompt, text="\n\n".join(kept)).filled(**values)


def language_of(text: str) -> str:
    """ko where more than a tenth of the letters are Hangul, as Korean texts have English names; otherwise en."""
    letters = [letter for letter in text if letter.isalpha()]
    hangul = sum("\uac00" <= letter <= "\ud7a3" for letter in letters)
    return "ko" if hangul > len(letters) / 10 else "en"


def situations(language: str, seed: int) -> list[str]:
    """What messages that need no retrieval may be: the kinds of messages in turn, each with a speaker and an occasion.

    `situations.txt` has the kinds, the speakers and the occasions, one per line, with a blank line between.
    """
    text = text_file(SHIPPED / language / "situations.txt", MOST).strip()
    messages, speakers, occasions = (block.split("\n") for block in text.split("\n\n"))
    pairs = [f"{speaker}, {occasion}" for speaker in speakers for occasion in occasions]
    shuffled = {message: picked(pairs, len(pairs), seed, message) for message in messages}
    return [f"{message} ({shuffled[message][number]})" for number in range(len(pairs)) for message in messages]
