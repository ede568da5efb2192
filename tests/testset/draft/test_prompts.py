"""Prompts of drafting: shipped ones in two languages, and files of the user."""

import pytest

from harness.errors import BadInput
from harness.llm.structured import PromptText
from harness.testset.draft import drafts
from harness.testset.draft.drafts import KINDS

NONE_GIVEN = dict.fromkeys(KINDS)
VALUES = {"questions": "2", "text": "달은 지구를 돈다.", "note": "이 문서는 '달'에 대한 정보이다.", "examples": "- 달?",
          "situation": "인사"}  # fmt: skip


@pytest.mark.parametrize("language", ["ko", "en"])
@pytest.mark.parametrize("kind", KINDS)
def test_shipped_prompts_have_places_for_all_that_is_filled_in(language, kind):
    prompt = drafts.read_prompts([kind], language, NONE_GIVEN)[kind]
    needed, optional = drafts.ABOUT_NONE if kind == "none" else drafts.ABOUT_A_DOCUMENT
    assert set(prompt.places) == {*needed, *optional}
    text = drafts.fill_prompt(prompt, VALUES)
    assert all(VALUES[name] in text for name in prompt.places)
    assert "{" not in text
    bare = drafts.fill_prompt(prompt, VALUES | {"note": "", "examples": ""})
    assert VALUES["note"] not in bare
    assert "\n\n\n" not in bare
    assert bare.count("\n\n") == text.count("\n\n") - (1 if kind == "none" else 2)


def test_a_paragraph_is_left_out_only_if_all_of_its_places_are_empty():
    prompt = PromptText('{note} {text}\n\nLike: {examples}\n\nJSON: {"a": {1}}', ("note", "text", "examples"))
    found = drafts.fill_prompt(prompt, {"note": "", "text": "a {text}\n\nb", "examples": ""})
    assert found == ' a {text}\n\nb\n\nJSON: {"a": {1}}'


def test_examples_need_a_place(tmp_path):
    path = tmp_path / "search.txt"
    path.write_text("{questions} {text}")
    found = drafts.read_prompts(["fact", "search"], "en", NONE_GIVEN | {"search": str(path)})
    with pytest.raises(BadInput, match=r"prompts.search has no \{examples\}"):
        drafts.check_examples(found)


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("달은 지구를 돈다", "ko"),
        ("The moon orbits the earth", "en"),
        ("나루 1톤 EV (Naru One Ton Electric Truck)", "ko"),  # 3 of 29 letters are Hangul
        ("The word 달 is Korean for the moon, and nothing else", "en"),  # 1 of 40
        ("123", "en"),
    ],
)
def test_the_language_of_a_text(text, language):
    assert drafts.language_of(text) == language


@pytest.mark.parametrize("language", ["ko", "en"])
def test_situations_are_different_and_their_kinds_come_in_turn(language):
    found = drafts.situations(language, 0)
    assert len(found) == len(set(found)) == 6 * 12 * 12
    kinds = [one.rpartition(" (")[0] for one in found]
    assert len(set(kinds[:6])) == 6
    assert kinds == kinds[:6] * 144
    assert drafts.situations(language, 0) == found != drafts.situations(language, 1)
