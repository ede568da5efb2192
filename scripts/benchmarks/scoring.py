"""Measures, gates and corrections against other libraries and plain loops."""

from __future__ import annotations

import csv
import random
import tempfile
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
from measuring import Table, best_of, relative, timed

from harness.data.qrels import Qrels
from retrievers.base import Ranking


def metrics(queries: int = 10_000, depth: int = 100) -> None:
    """Time all our measures against three measures of pytrec_eval and of ranx, on the same generated runs.

    Ours reads a Ranking and includes looking up the labels. The conversion to the dicts that the others read is timed
    separately, as is ranx's compilation (its first call). Each time is the best of three.
    """
    import pytrec_eval
    from ranx import Qrels as RanxQrels
    from ranx import Run, evaluate

    from harness.measures.measures import MEASURES, MeasureFamily, of_holes

    ranking, qrels = _made_run(queries, depth)
    names = []
    for name, (family, _) in MEASURES.items():
        if not of_holes(name):  # these labels do not say which documents were judged
            cuts = (1, 3, 5, 10, 100) if family in (MeasureFamily.STANDARD, MeasureFamily.MODIFIED) else ()
            names += [name, *(f"{name}@{k}" for k in cuts)]
    seconds, means = best_of(3, lambda: _our_means(ranking, qrels, names))
    rows = [(f"ours: {len(names)} measures, judging included", seconds)]

    converting, run = timed(ranking.to_dict)
    integers = {query: {doc: int(grade) for doc, grade in row.items()} for query, row in qrels.grades.items()}
    evaluator = pytrec_eval.RelevanceEvaluator(integers, {"map", "recip_rank", "ndcg"})
    seconds, found = best_of(3, lambda: evaluator.evaluate(run))
    rows += [("pytrec_eval: map, recip_rank, ndcg", seconds), ("  its run as dicts", converting)]

    wanted = ["map", "mrr", "ndcg"]
    converting, (their_qrels, their_run) = timed(lambda: (RanxQrels(integers), Run(run)))
    compiling, _ = timed(lambda: evaluate(their_qrels, their_run, wanted))
    seconds, ranx_means = best_of(3, lambda: evaluate(their_qrels, their_run, wanted))
    rows += [("ranx: map, mrr, ndcg", seconds), ("  its qrels and run from dicts", converting)]
    rows += [("  its first call", compiling)]

    for name, trec_name in (("map", "map"), ("mrr", "recip_rank"), ("ndcg", "ndcg")):
        theirs = np.mean([row[trec_name] for row in found.values()])
        np.testing.assert_allclose([theirs, ranx_means[name]], means[name], rtol=0, atol=1e-9)
    print(f"{queries} queries, {depth} documents each; all three agree on map, mrr and ndcg to 1e-9.\n")
    relative(rows, "ours")


def _made_run(queries: int, depth: int, documents: int = 50_000) -> tuple[Ranking, Qrels]:
    """Return random rankings, and 1 to 10 graded relevant documents per query, about half of them returned."""
    rng, generator = random.Random(0), np.random.default_rng(0)
    docs = np.stack([generator.choice(documents, depth, replace=False) for _ in range(queries)]).astype(np.int32)
    # Integers: trec_eval stores scores in single precision, in which close ones would tie.
    scores = np.tile(np.arange(depth, 0.0, -1.0), (queries, 1))
    doc_ids = tuple(f"d{number:06}" for number in range(documents))
    ranking = Ranking(tuple(f"q{number}" for number in range(queries)), doc_ids, docs, scores)
    grades = {}
    for query_id, row in zip(ranking.query_ids, docs, strict=True):
        returned = rng.sample(row.tolist(), rng.randint(0, min(5, depth)))
        elsewhere = rng.sample(range(documents), rng.randint(1, 5))
        grades[query_id] = {doc_ids[doc]: float(rng.randint(1, 3)) for doc in (*returned, *elsewhere)}
    return ranking, Qrels(grades, abstention=False)


def _our_means(ranking: Ranking, qrels: Qrels, names: list[str]) -> dict[str, float]:
    from harness.measures.judged import judge_lists
    from harness.measures.measures import MeasureFamily, parse_measure

    judged = judge_lists(ranking, qrels, signal=ranking.scores[:, 0])
    means = {}
    for name in names:
        one = parse_measure(name)
        if one.family is MeasureFamily.POOLED:
            means[name], _ = one.pooled(judged)
        else:
            values = one.values(judged)
            counted = ~np.isnan(values)
            means[name] = values[counted].mean() if counted.any() else 0.0
    return means


def gate(*sizes: int) -> None:
    """Time the fitting of a gate's threshold against a plain loop over thresholds.

    SIZES are numbers of queries (default: 220 1000 10000). Ours: the exact curve of the objective over every threshold,
    and 2,000 bootstrap replicates with a new fit in each. The loop computes only the curve; both curves must be equal.
    """
    from harness.gates.calibration import RESAMPLES, bootstrap, curve

    table = Table("queries", "curve, s", f"{RESAMPLES:,} replicates, s", "loop over thresholds, s")
    for queries in sizes or (220, 1000, 10000):
        generator = np.random.default_rng(0)
        needs = generator.random(queries) > 0.1
        signal = np.round(generator.normal(np.where(needs, 8, 4), 2), 1)  # with ties
        shown = np.where(needs, generator.choice([0, 1 / 3, 0.5, 1], queries), 0.0)
        earned = np.stack([shown, np.where(needs, 0.0, 1.0)], axis=1)

        def loop(signal: np.ndarray = signal, earned: np.ndarray = earned) -> list[float]:
            thresholds = [np.inf, *sorted(set(signal.tolist()), reverse=True)]
            return [np.where(signal >= t, earned[:, 0], earned[:, 1]).mean() for t in thresholds]

        exact, fitted = timed(lambda signal=signal, earned=earned: curve(signal, earned))
        replicates, _ = timed(lambda signal=signal, earned=earned: bootstrap(signal, earned, 0))
        looped, expected = timed(loop)
        np.testing.assert_allclose(fitted.values, expected, atol=1e-12)
        table.row(queries, exact, replicates, looped)


STEMS = "바람 구름 하늘 나무 사람 학교 아침 저녁 동네 골목 마음 소리 그림 노래 편지 바다 시장 가게 기차 계단".split()  # noqa: SIM905
ENDINGS = ("", *["이", "은", "을", "에", "에서", "으로", "과", "도", "만", "까지", "부터", "처럼", "이라고", "에게"])
VERBS = ["걸었다", "보였다", "들렸다", "열렸다", "떠났다", "돌아왔다", "기다렸다", "이야기했다", "생각났다", "시작됐다"]
MISTAKES = 0.12  # share of words with a mistake
LONG = 3_000  # words per text of the long pair


def corrections(size: int = 100_000) -> None:
    """Time our scoring of corrections against Python's difflib doing the same work, on the same generated sentences.

    Ours is `alignment.compare`, including the splitting into words, once per scheme; and the whole task, from two CSV
    files to the table with marked edits. difflib aligns both targets of each sentence (SequenceMatcher without its junk
    rule); a Python loop makes and judges the edits of scheme `token`. Its alignment is not always a longest common
    subsequence: the share of equal counts is printed. Everything runs on one core; ours are the best of three.
    """
    from harness.storage.cache import Cache
    from harness.tasks.alignment import judge_edits
    from harness.tasks.corrections import Corrections

    texts = _sentences(size)
    judge_edits(*(column[:1] for column in texts))  # compiles
    seconds, ours = best_of(3, lambda: judge_edits(*texts))
    rows = [("ours: scheme token", seconds), ("ours: scheme span", best_of(3, lambda: judge_edits(*texts, "span"))[0])]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        references = _written(folder / "references.csv", source=texts[0], reference=texts[1])
        predictions = _written(folder / "predictions.csv", prediction=texts[2])
        task = Corrections()
        seconds, _ = timed(lambda: task.judge(predictions, references, task.measures, Cache(folder / "store")))
        rows.append(("ours: the whole task, from files to table", seconds))
    theirs, counts = timed(lambda: [_plain_counts(*row) for row in zip(*texts, strict=True)])
    rows.append(("difflib: scheme token", theirs))
    rng = random.Random(1)
    long = [" ".join(rng.choice(STEMS) + rng.choice(ENDINGS) for _ in range(LONG)) for _ in range(2)]
    seconds, _ = best_of(3, lambda: judge_edits(long[:1], long[1:], long[:1]))
    rows.append((f"ours: one pair of {LONG:,} words each", seconds))
    words = sum(len(text.split()) for column in texts for text in column)
    alike = (ours.counts == np.array(counts)).all(axis=1).mean()
    print(f"{size:,} sentences, {words:,} words; difflib gives equal counts for {alike:.2%} of the sentences.\n")
    relative(rows, "ours")


def _sentences(size: int) -> tuple[list[str], list[str], list[str]]:
    """Return sources with mistakes, references, and predictions that correct half and make new mistakes."""
    rng = random.Random(0)
    sources, references, predictions = [], [], []
    for _ in range(size):
        right = [rng.choice(STEMS) + rng.choice(ENDINGS) for _ in range(rng.randint(4, 24))] + [rng.choice(VERBS)]
        wrong = _damaged(right, MISTAKES, rng)
        sources.append(" ".join(wrong))
        references.append(" ".join(right))
        predictions.append(" ".join(_damaged(right if rng.random() < 0.5 else wrong, MISTAKES / 4, rng)))
    return sources, references, predictions


def _damaged(words: list[str], share: float, rng: random.Random) -> list[str]:
    """Return the words, some of them misspelt, joined, split, left out, doubled or swapped."""
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
        elif kind != 4:
            found.append(word if kind is None else word + rng.choice("은는이가을를"))
    return found or words


def _plain_edits(source: list[str], target: list[str]) -> dict[int, list[str]]:
    """Return position -> words put there, under scheme `token`, by difflib's alignment."""
    edits: dict[int, list[str]] = {}
    for kind, start, end, other, until in SequenceMatcher(None, source, target, autojunk=False).get_opcodes():
        if kind != "equal":
            edits |= {position: [] for position in range(start, end)}
            for k in range(other, until):
                edits.setdefault(min(start + k - other, max(start, end - 1)), []).append(target[k])
    return edits


def _plain_counts(source: str, reference: str, prediction: str) -> list[int]:
    wanted, made = (_plain_edits(source.split(), target.split()) for target in (reference, prediction))
    right = sum(place in wanted and wanted[place] == words for place, words in made.items())
    return [right, len(made) - right, len(wanted.keys() - made.keys()), len(made.keys() - wanted.keys())]


def _written(path: Path, **columns: list[str]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *columns])
        writer.writerows([number, *row] for number, row in enumerate(zip(*columns.values(), strict=True)))
    return path
