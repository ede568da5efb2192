"""A partial model of kiwi analyses its texts as the whole model does, and is made only where it saves time."""

import pytest

from harness import interruption
from retrievers.lexical import kiwi_dictionary, tokenize
from retrievers.lexical.kiwi_dictionary import brief_model, brief_texts, partial_model, reachable, syllables

TEXTS = [
    "달은 왜 모양이 변해?",
    "나폴레옹의 NASA 탐사선이 갈릴레이를 만난 때",
    "경찰이 임종석의 구속 영장을 발부받은 날은?",
]

DICTIONARY = """# a comment
가나	NNP	-10.0
각하	NNP	-10.0
나 + 라	NNP	-1.0
나라다	나 ++ 라/NNP	0.0
나람	이/VCP + ᆷ/ETN	0.0
다라	NNP	-3.0
다마	NNP	-3.0
NASA	나사/NNP	0.0
라	NNP	-3.0	# 라
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("가나", ["가나", "나 + 라", "NASA"]),
        ("나는 각라", ["가나", "나 + 라", "나라다", "나람", "NASA", "라"]),
        ("나랄", ["나 + 라", "나라다", "나람", "NASA", "라"]),
        ("담", ["다라", "NASA"]),  # 다라 stands for all words with this first syllable
        ("moon", ["NASA"]),
    ],
)
def test_a_word_is_kept_if_its_first_two_syllables_are_in_the_text(text, words):
    kept = reachable(DICTIONARY, syllables(text))
    assert [line.partition("\t")[0] for line in kept] == words
    assert {*kept} <= {*DICTIONARY.splitlines()}


def test_a_referenced_line_is_kept_before_its_line():
    assert reachable("다\tNNP\t-1\nx\t다/NNP\t0\n", frozenset()) == ["다\tNNP\t-1", "x\t다/NNP\t0"]


def test_a_partial_model_analyses_its_texts_as_the_whole_model():
    whole = tokenize.kiwi_model(None)
    partial = partial_model(TEXTS)
    assert partial
    for text in TEXTS:
        found, expected = (
            [(one.form, one.tag, one.start, one.len) for one in model.tokenize(text)] for model in (partial, whole)
        )
        assert found == expected


@pytest.mark.parametrize("text", ["옛날샤를로트 코르데가 있었다", "더글라스 애덤스", "더글 라스애덤스는?"])
def test_a_word_with_spaces_needs_the_whole_model(text):
    """Kiwi's dictionaries have 샤를로트 and 샤를 로트, and which one it finds depends on its other words."""
    assert partial_model([text]) is None


@pytest.fixture
def made(monkeypatch):
    """The texts of the partial models that were made."""
    found = []
    monkeypatch.setattr(kiwi_dictionary, "partial_model", lambda texts: found.append(texts) or "partial")
    return found


def test_a_block_of_brief_texts_makes_one_partial_model_for_its_texts(made):
    assert brief_model(["달"]) is None
    with brief_texts():
        assert brief_model(["달" * 301]) is None
        assert brief_model(["달은", "왜"]) == "partial"
        assert brief_model(["왜"]) == "partial"
        assert brief_model(["물은", "왜"]) is None
    assert made == [["달은", "왜"]]
    assert brief_model(["달"]) is None


def test_only_a_process_for_one_command_loads_part_of_the_model(harness, made, monkeypatch):
    words = ("search", "query='달은 왜 모양이 변해?'", "format=json")
    first = harness(*words).json  # the documents are tokenized and cached, so the whole model is loaded
    whole = tokenize.kiwi_model(None)
    monkeypatch.setattr(kiwi_dictionary, "partial_model", lambda texts: made.append(texts) or whole)
    unloaded = tokenize.lru_cache(lambda workers: whole)
    monkeypatch.setattr(tokenize, "_loaded_kiwi", unloaded)
    assert harness(*words).json == first
    assert not made
    unloaded.cache_clear()
    monkeypatch.setattr(interruption, "_listens", [True])
    assert harness(*words).json == first
    assert made == [["달은 왜 모양이 변해?"]]
    assert not unloaded.cache_info().currsize


def test_another_version_of_kiwi_loads_the_whole_model(monkeypatch):
    monkeypatch.setattr(kiwi_dictionary, "version", lambda name: "9.9")
    with brief_texts():
        assert brief_model(TEXTS) is None
