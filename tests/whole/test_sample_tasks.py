"""The shipped corrections and answers: plain files, kinds of items, and their scores."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.statistics.significance import swap_test
from harness.storage.cache import Cache
from harness.tasks.answers import Answers, alternatives, read_references, split_reason
from harness.tasks.corrections import Corrections
from harness.tasks.scored_file import in_public, measure_all, tallied
from harness.tasks.task import JudgedItems

CORRECTIONS, ANSWERS = (Path(harness.__file__).parent / "sample" / name for name in ("corrections", "answers"))
PLAIN = ("accuracy", "exact_match", "rouge_1")  # measures that need no model


@pytest.fixture
def store(tmp_path: Path) -> Cache:
    return Cache(tmp_path)


def table(name: str) -> list[dict[str, str]]:
    with (CORRECTIONS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def corrected(store: Cache, name: str, scheme: str = "token") -> JudgedItems:
    task = Corrections(scheme)
    return task.judge(CORRECTIONS / f"{name}.csv", CORRECTIONS / "references.csv", task.measures, store)


def answered(store: Cache, predictions: Path, references: str = "references", **arguments: Any) -> dict[str, Any]:
    """The judged items, the number of items per part, and the measures that need no model."""
    task = Answers(tokenizer="whitespace", **arguments)
    wanted = [name for name in task.measures if name in PLAIN]
    judged = task.judge(predictions, ANSWERS / f"{references}.json", wanted, store)
    found = measure_all(task, judged.item_counts)
    counts = {name: round(judged.item_counts[name].sum()) for name in task.counts}
    return {"judged": judged, "counts": counts, "measures": {name: found[name] for name in wanted}}


def sums(judged: JudgedItems, rows: list[int] | slice = slice(None)) -> tuple[int, ...]:
    """tp, fp, fn, fr."""
    return tuple(int(values[rows].sum()) for values in judged.item_counts.values())


def test_sentences_have_their_kinds() -> None:
    rows = table("references")
    assert Counter(row["error_type"] for row in rows) == {
        **{"띄어쓰기": 11, "맞춤법": 11, "조사": 8, "어미": 8, "복합": 8},
        **{"오류 없음": 6, "높임": 4, "문장부호": 4},
    }
    assert all((row["source"] == row["reference"]) == (row["error_type"] == "오류 없음") for row in rows)
    assert len({row["source"] for row in rows}) == len(rows) == 60
    assert [row["prediction"] for row in table("untouched")] == [row["source"] for row in rows]


# By token: 67 edits are required. Careful makes one of them wrongly (c22) and a needless one (c28). Eager makes
# seven wrongly (c01, c08, c14, c22, c26, c34, c56): 55 + 5 + 7 = 67.
@pytest.mark.parametrize(
    ("scheme", "name", "counts"),
    [
        ("token", "careful", (38, 2, 28, 1)),
        ("token", "eager", (55, 32, 5, 25)),
        ("token", "untouched", (0, 0, 67, 0)),
        ("span", "careful", (32, 3, 21, 2)),
        ("span", "eager", (34, 17, 5, 10)),
        ("span", "untouched", (0, 0, 56, 0)),
    ],
)
def test_corrections_score_as_expected(store: Cache, scheme: str, name: str, counts: tuple[int, ...]) -> None:
    judged = corrected(store, name, scheme)
    tp, fp, fn, fr = counts
    assert sums(judged) == counts
    assert measure_all(Corrections(scheme), judged.item_counts) == {
        "correction_recall": pytest.approx(tp / (tp + fp + fn), abs=1e-12),
        "correction_precision": pytest.approx(tp / (tp + fp + fr) if tp else 0, abs=1e-12),
    }


# (sentence, submission, tp, fp, fn, fr by token, by span)
BY_HAND = [
    # 설겆이를 한뒤에 -> 설거지를 한 뒤에: two adjacent words, one span.
    ("c06", "careful", (2, 0, 0, 0), (1, 0, 0, 0)),
    # 오던지, 눈이, 오던지 begin 2 apart: one span, and the needless 열립니다, 2 further on, joins it and spoils it.
    ("c04", "careful", (0, 0, 2, 0), (0, 0, 1, 0)),
    ("c04", "eager", (2, 1, 0, 1), (0, 1, 0, 0)),
    # 천 원 밖에 -> 천 원밖에: 원 becomes 원밖에 and 밖에 is deleted.
    ("c17", "eager", (2, 0, 0, 0), (1, 0, 0, 0)),
    # 풀수 있다 -> 풀 수 있습니다: words pair from left to right, so that 풀수 becomes 풀 and 있다 becomes 수 있습니다.
    ("c01", "eager", (0, 2, 0, 1), (0, 1, 0, 0)),
    # 하고 말았다 -> 하고말았다, needless: two words edited, one span; it begins 2 after 어의없는 and joins it.
    ("c19", "eager", (1, 2, 0, 2), (0, 1, 0, 0)),
    # Without error, and 바로 becomes 곧바로.
    ("c16", "eager", (0, 1, 0, 1), (0, 0, 0, 1)),
    ("c16", "careful", (0, 0, 0, 0), (0, 0, 0, 0)),
]


@pytest.mark.parametrize(("item", "name", "by_token", "by_span"), BY_HAND, ids=lambda value: str(value))
def test_sentences_worked_by_hand(
    store: Cache, item: str, name: str, by_token: tuple[int, ...], by_span: tuple[int, ...]
) -> None:
    for scheme, counts in (("token", by_token), ("span", by_span)):
        judged = corrected(store, name, scheme)
        assert sums(judged, [judged.item_ids.index(item)]) == counts


@pytest.mark.parametrize("scheme", ["token", "span"])
def test_the_references_as_predictions_are_perfect(store: Cache, scheme: str) -> None:
    path = CORRECTIONS / "references.csv"
    task = Corrections(scheme, columns={"prediction": "reference"})
    judged = task.judge(path, path, task.measures, store)
    assert sums(judged)[1:] == (0, 0, 0)
    assert measure_all(task, judged.item_counts) == {"correction_recall": 1, "correction_precision": 1}


def test_leaving_all_as_it_was_is_told(store: Cache) -> None:
    told = ("54 of 54 sentences that need correction were left unchanged.",)
    assert corrected(store, "untouched").notes == told
    assert corrected(store, "careful").notes == corrected(store, "eager").notes == ()


def test_the_public_winner_is_not_the_private_one_and_neither_is_proved(store: Cache) -> None:
    task, careful, eager = Corrections(), corrected(store, "careful"), corrected(store, "eager")
    public = in_public(careful, seed=0, public=0.4)
    ahead = [
        measure_all(task, eager.item_counts, rows)["correction_recall"]
        - measure_all(task, careful.item_counts, rows)["correction_recall"]
        for rows in (public, ~public)
    ]
    assert ahead[0] > 0.1
    assert ahead[1] < -0.05
    p, _ = swap_test(
        *(tallied(task, one.item_counts, task.measures) for one in (careful, eager)), seed=0, resamples=2000
    )
    assert p[0] > 0.3  # by recall they cannot be told apart,
    assert p[1] < 0.01  # by precision they can


def test_answers_have_their_kinds_and_shape() -> None:
    norms, culture = (read_references(ANSWERS / f"{name}.json") for name in ("references", "culture"))
    assert Counter(one.kind for one in norms.values()) == {"선택형": 14, "교정형": 10}
    assert Counter(one.kind for one in culture.values()) == {"선다형": 6, "단답형": 6, "서술형": 6}
    assert all(one.question for one in (*norms.values(), *culture.values()))
    parts = [split_reason(one.answer) for one in norms.values()]
    assert all(answer.endswith("옳다") and reason.endswith("다.") for answer, reason in parts)
    assert Counter(len(alternatives(answer)) for answer, _ in parts) == {1: 20, 2: 3, 3: 1}


@pytest.mark.parametrize(
    ("name", "references", "scheme", "counts", "expected"),
    [
        (
            *("first", "references", "rag_qa"),
            {"items": 24, "explained": 24, "unexplained": 0},
            {"exact_match": 22 / 24, "rouge_1": 0.438467},
        ),
        (  # no reason at n20, no `가 옳다` at n10, nothing at all at n23
            *("second", "references", "rag_qa"),
            {"items": 24, "explained": 21, "unexplained": 3},
            {"exact_match": 13 / 24, "rouge_1": 0.190882},
        ),
        (
            *("culture_first", "culture", "culture_qa"),
            {"multiple_choice": 6, "short_answer": 6, "descriptive": 6},
            {"accuracy": 4 / 6, "exact_match": 5 / 6, "rouge_1": 0.402408},
        ),
    ],
    ids=["first", "second", "culture_first"],
)
def test_answers_score_as_expected(
    store: Cache, name: str, references: str, scheme: str, counts: dict[str, int], expected: dict[str, float]
) -> None:
    found = answered(store, ANSWERS / f"{name}.json", references, scheme=scheme)
    assert found["counts"] == counts
    assert found["measures"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "item", "match", "rouge"),
    [
        # 님 은 접미사여서 합성어가 아니므로 사이시옷을 적지 않는다: 8 words, 3 of them among the reference's 14.
        ("first", "n06", 1, 2 * 3 / (8 + 14)),
        # 단위를 나타내는 명사는 띄어 쓴다: 5 words, all among the reference's 9.
        ("first", "n17", 1, 2 * 5 / (5 + 9)),
        ("first", "n18", 1, None),  # the second of two acceptable sentences
        ("second", "n18", 1, 0),  # the first
        ("second", "n16", 0, 0),  # left as it was: 도서관에서 처럼
        ("second", "n22", 0, None),  # right, but for a word that was left out
    ],
)
def test_answers_worked_by_hand(store: Cache, name: str, item: str, match: int, rouge: float | None) -> None:
    judged = answered(store, ANSWERS / f"{name}.json")["judged"]
    row = judged.item_ids.index(item)
    assert judged.table["exact_match"][row] == match
    assert rouge is None or judged.table["rouge_1"][row] == pytest.approx(rouge, abs=1e-12)


def test_the_references_first_alternatives_are_perfect(store: Cache, tmp_path: Path) -> None:
    """A prediction is a single answer, so a reference with alternatives is not a valid prediction."""
    for name, scheme in (("references", "rag_qa"), ("culture", "culture_qa")):
        items = []
        for item_id, one in read_references(ANSWERS / f"{name}.json").items():
            answer, reason = split_reason(one.answer)
            text = f"{answer.partition('#')[0]}. {reason}" if reason else answer.partition("#")[0]
            items.append({"id": item_id, "output": {"answer": text}})
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(items), "utf-8")
        assert answered(store, path, name, scheme=scheme)["measures"] == pytest.approx(
            dict.fromkeys(PLAIN if scheme == "culture_qa" else PLAIN[1:], 1.0), abs=1e-12
        )
