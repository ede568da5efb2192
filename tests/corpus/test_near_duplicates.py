"""Near-duplicates, against the Jaccard similarity of all pairs, computed from sets of strings."""

import random
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.corpus import near_duplicates
from harness.corpus.near_duplicates import THRESHOLD, find_near_duplicates

LETTERS = "가나다라마바사아자차카타파하강산달별빛물불흙금목토일월화수 abcdefghij "


def shingles(text):
    text = " ".join(text.casefold().split())
    return {text[i : i + 5] for i in range(max(1, len(text) - 4))} if text else set()


def jaccard(one, other):
    one, other = shingles(one), shingles(other)
    return len(one & other) / len(one | other) if one | other else 0.0


def groups(pairs, count):
    """The group of each text, found by following `a` to the first of the group."""
    leads = {pair.b: pair.a for pair in pairs}
    assert len(leads) == len(pairs), "each text is the b of one pair at most"
    found = []
    for one in range(count):
        seen = [one]
        while seen[-1] in leads:
            seen.append(leads[seen[-1]])
            assert len(seen) <= count
        found.append(seen[-1])
    return found


def text_of(generator, length=300):
    return "".join(generator.choices(LETTERS, k=length))


def changed(text, generator, changes=3):
    letters = list(text)
    for _ in range(changes):
        letters[generator.randrange(len(letters))] = generator.choice(LETTERS)
    return "".join(letters)


@pytest.fixture
def near(tmp_path):
    """The near-duplicates of a list of texts."""
    return lambda texts: find_near_duplicates(iter(texts), len(texts), tmp_path)


ONE = "가람모터스는 2011년에 세워진 전기 화물차 제조사로, 본사는 울산에 있고 직원은 820명이다."
OTHER = "새론배터리는 고체 전해질을 쓰는 전지를 개발하며, 시제품을 내년 봄에 공개할 예정이다."


@pytest.mark.parametrize(
    ("texts", "pairs"),
    [
        ([], []),
        ([ONE], []),
        ([ONE, OTHER], []),
        ([ONE, OTHER, ONE], [(0, 2, 1.0)]),
        # Case and white space do not count; nor do they elsewhere in search.
        (["Garam Motors builds\n trucks.", "garam motors  BUILDS trucks."], [(0, 1, 1.0)]),
        # 50 shingles; the changed last letter is in one: 49 shared of 51.
        (["abcdefghij" + ONE[:44], "abcdefghij" + ONE[:43] + "X"], [(0, 1, 49 / 51)]),
        # Empty texts repeat nothing, not even each other.
        (["", "  \n", ONE, ""], []),
        # Texts shorter than a shingle are equal or not.
        (["가나", "다", "가나", "가나다"], [(0, 2, 1.0)]),
        # A group of four copies has three pairs, each with the first.
        ([ONE, OTHER, ONE, ONE + " ", ONE], [(0, 2, 1.0), (0, 3, 1.0), (0, 4, 1.0)]),
    ],
)
def test_pairs(near, texts, pairs):
    found = [(pair.a, pair.b, pytest.approx(pair.similarity)) for pair in near(texts)]
    assert found == pairs


def test_a_chain_is_one_group_whose_pairs_are_all_similar(near):
    generator = random.Random(0)
    texts = [text_of(generator)]
    for _ in range(20):
        texts.append(changed(texts[-1], generator))
    assert jaccard(texts[0], texts[-1]) < 0.6
    pairs = near(texts)
    assert set(groups(pairs, len(texts))) == {0}
    for pair in pairs:
        assert pair.similarity == pytest.approx(jaccard(texts[pair.a], texts[pair.b]))
        assert pair.similarity >= THRESHOLD
        assert pair.a == 0 or jaccard(texts[0], texts[pair.b]) < THRESHOLD


@pytest.mark.slow
@given(st.lists(st.text(alphabet="ab가나 \n", max_size=12), max_size=30))
def test_every_pair_is_true_and_equal_texts_are_in_one_group(tmp_path_factory, texts):
    pairs = find_near_duplicates(texts, len(texts), tmp_path_factory.getbasetemp())
    for pair in pairs:
        assert pair.similarity == pytest.approx(jaccard(texts[pair.a], texts[pair.b]))
        assert pair.similarity >= THRESHOLD
    group = groups(pairs, len(texts))
    for a, b in combinations(range(len(texts)), 2):
        if shingles(texts[a]) and shingles(texts[a]) == shingles(texts[b]):
            assert group[a] == group[b]


@pytest.mark.slow
def test_recall_of_similar_pairs(near):
    """Of the pairs with a similarity of 0.9 or more, at least 99 % are in one group; of those above 0.8, 95 %."""
    generator = random.Random(1)
    texts = [text_of(generator, generator.randrange(60, 500)) for _ in range(60)]
    texts += [changed(text, generator, generator.randrange(8)) for text in texts * 3]
    generator.shuffle(texts)
    pairs = near(texts)
    group = groups(pairs, len(texts))
    sets = [shingles(text) for text in texts]
    missed, total = {0.8: 0, 0.9: 0}, {0.8: 0, 0.9: 0}
    for a, b in combinations(range(len(texts)), 2):
        similarity = len(sets[a] & sets[b]) / len(sets[a] | sets[b])
        for level in total:
            total[level] += similarity >= level
            missed[level] += similarity >= level and group[a] != group[b]
    assert total[0.9] > 80
    assert missed[0.9] <= 0.01 * total[0.9]
    assert missed[0.8] <= 0.05 * total[0.8]


def test_a_bucket_of_unlike_documents_is_not_compared_pair_by_pair(near, monkeypatch):
    """Documents that agree in every band without being similar, as if the keys were useless."""
    generator, compared = random.Random(2), []
    similarities = near_duplicates._Signed.similarities

    def counted(self, left, right):
        compared.append(len(left))
        return similarities(self, left, right)

    monkeypatch.setattr(near_duplicates, "_keys", lambda texts, *_: np.zeros((len(texts), 20), np.uint64))
    monkeypatch.setattr(near_duplicates._Signed, "similarities", counted)
    assert near([text_of(generator) for _ in range(300)]) == []
    assert sum(compared) <= near_duplicates.COMPARISONS * 300


def test_blocks_change_nothing_and_temporary_files_are_removed(tmp_path, monkeypatch):
    generator, seen = random.Random(3), []
    texts = [text_of(generator) for _ in range(40)]
    texts += [changed(text, generator) for text in texts]
    whole = find_near_duplicates(texts, 80, tmp_path, lambda *call: seen.append(call))
    assert len(whole) == 40
    assert (seen[0], seen[-1]) == ((80, 80, "documents"), (20, 20, "bands"))
    monkeypatch.setattr("harness.corpus.near_duplicates.BLOCK", 1000)
    assert find_near_duplicates(texts, 80, tmp_path) == whole
    assert list(tmp_path.iterdir()) == []
