"""Time our scoring of corrections against Python's difflib doing the same work, on the same generated sentences.

    python scripts/benchmark_corrections.py [SENTENCES]     # default 100000

Ours is `alignment.compare`, including the splitting into words, once per scheme; and the whole task, from two CSV files
to the table with marked edits. difflib aligns both targets of each sentence (SequenceMatcher without its junk rule); a
Python loop makes and judges the edits of scheme `token`. Its alignment is not always a longest common subsequence, so
some sentences are counted differently; the share of equal counts is printed. Everything runs on one core. Our times are
the best of three, after a first call that compiles.
"""

from __future__ import annotations

import csv
import random
import sys
import tempfile
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
from benchmark import best_of, relative

from harness.storage.cache import Cache
from harness.tasks.alignment import compare
from harness.tasks.corrections import Corrections

STEMS = (
    "바람", "구름", "하늘", "나무", "사람", "학교", "아침", "저녁", "동네", "골목",
    "마음", "소리", "그림", "노래", "편지", "바다", "시장", "가게", "기차", "계단",
)  # fmt: skip
ENDINGS = ("", "이", "은", "을", "에", "에서", "으로", "과", "도", "만", "까지", "부터", "처럼", "이라고", "에게")
VERBS = ("걸었다", "보였다", "들렸다", "열렸다", "떠났다", "돌아왔다", "기다렸다", "이야기했다", "생각났다", "시작됐다")
SHARE = 0.12  # share of words with a mistake
LONG = 3_000  # words per text of the long pair


def damaged(words: list[str], share: float, rng: random.Random) -> list[str]:
    """The words, some of them misspelt, joined, split, left out, doubled or swapped."""
    found: list[str] = []
    for word in words:
        kind = rng.randrange(6) if rng.random() < share else None
        if kind == 0 and found:
            found[-1] += word
        elif kind == 1 and len(word) > 2:
            found += [word[:2], word[2:]]
        elif kind == 2:
            found += [word, word]
        elif kind == 3 and found:
            found.insert(-1, word)
        elif kind == 4:
            continue
        else:
            found.append(word if kind is None else word + rng.choice("은는이가을를"))
    return found or words


def make(size: int) -> tuple[list[str], list[str], list[str]]:
    """Sources with mistakes, references, and predictions that correct half of the sentences and make new mistakes."""
    rng = random.Random(0)
    sources, references, predictions = [], [], []
    for _ in range(size):
        right = [rng.choice(STEMS) + rng.choice(ENDINGS) for _ in range(rng.randint(4, 24))] + [rng.choice(VERBS)]
        wrong = damaged(right, SHARE, rng)
        sources.append(" ".join(wrong))
        references.append(" ".join(right))
        predictions.append(" ".join(damaged(right if rng.random() < 0.5 else wrong, SHARE / 4, rng)))
    return sources, references, predictions


def plain_edits(source: list[str], target: list[str]) -> dict[int, list[str]]:
    """Position -> words put there, under scheme `token`, by difflib's alignment."""
    edits: dict[int, list[str]] = {}
    for kind, i, end, j, until in SequenceMatcher(None, source, target, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        for position in range(i, end):
            edits[position] = []
        for k in range(j, until):
            edits.setdefault(min(i + k - j, max(i, end - 1)), []).append(target[k])
    return edits


def plain_counts(source: str, reference: str, prediction: str) -> list[int]:
    wanted, made = (plain_edits(source.split(), target.split()) for target in (reference, prediction))
    tp = sum(place in wanted and wanted[place] == words for place, words in made.items())
    return [tp, len(made) - tp, len(wanted.keys() - made.keys()), len(made.keys() - wanted.keys())]


def write(path: Path, **columns: list[str]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *columns])
        writer.writerows([number, *row] for number, row in enumerate(zip(*columns.values(), strict=True)))
    return path


def main(size: int = 100_000) -> None:
    texts = make(size)
    compare(*(column[:1] for column in texts))
    seconds, compared = best_of(3, lambda: compare(*texts))
    rows = [("ours: scheme token", seconds)]
    rows.append(("ours: scheme span", best_of(3, lambda: compare(*texts, "span"))[0]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        references = write(folder / "references.csv", source=texts[0], reference=texts[1])
        predictions = write(folder / "predictions.csv", prediction=texts[2])
        task = Corrections()
        judging = lambda: task.judge(predictions, references, task.measures, Cache(folder / "store"))  # noqa: E731
        rows.append(("ours: the whole task, from files to table", best_of(1, judging)[0]))
    theirs, counts = best_of(1, lambda: [plain_counts(*row) for row in zip(*texts, strict=True)])
    rows.append(("difflib: scheme token", theirs))
    rng = random.Random(1)
    long = [" ".join(rng.choice(STEMS) + rng.choice(ENDINGS) for _ in range(LONG)) for _ in range(2)]
    rows.append(
        (f"ours: one pair of {LONG:,} words each", best_of(3, lambda: compare(long[:1], long[1:], long[:1]))[0])
    )

    words = sum(len(text.split()) for column in texts for text in column)
    alike = (compared.counts == np.array(counts)).all(axis=1).mean()
    print(f"{size:,} sentences, {words:,} words; difflib gives equal counts for {alike:.2%} of the sentences.\n")
    relative(rows, "ours")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
