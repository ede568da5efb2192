"""Measures against pytrec_eval and ranx."""

from __future__ import annotations

import random

import numpy as np
from measuring import best_of, relative, timed

from harness.data.qrels import Qrels
from retrievers.base import Ranking


def metrics(queries: int = 10_000, depth: int = 100) -> None:
    """Time all our measures, and three measures of pytrec_eval and of ranx, on the same generated runs.

    Ours reads a Ranking and looks up the labels. Timed separately: the conversion to the dicts that the others read,
    and ranx's compilation (its first call). Each time is the best of three.
    """
    import pytrec_eval
    from ranx import Qrels as RanxQrels
    from ranx import Run, evaluate

    from harness.measures.measures import MEASURES, MeasureFamily, of_holes

    ranking, qrels = _made_run(queries, depth)
    names = []
    for name, measure in MEASURES.items():
        if not of_holes(name):  # these labels do not say which documents were judged
            cuts = (1, 3, 5, 10, 100) if measure.family in (MeasureFamily.STANDARD, MeasureFamily.MODIFIED) else ()
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
    rng, generator = random.Random(0), np.random.default_rng(0)
    docs = np.stack([generator.choice(documents, depth, replace=False) for _ in range(queries)]).astype(np.int32)
    # Integers: trec_eval stores scores in single precision, and close ones would tie.
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
