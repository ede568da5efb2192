"""Compare today's queries with the labelled ones: are the labels still about what people ask?"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from harness.analysis.comparison.comparison import p_in_words
from harness.config.text import counted
from harness.corpus.near_duplicates import find_near_duplicates
from harness.data.files import some
from harness.errors import BadInput
from harness.experiment import steps
from harness.experiment.cached_parts import CachedTokenizer
from harness.experiment.plan import Plan
from harness.experiment.session import Session, open_session
from harness.gates.signals import signal_of
from harness.progress import stage, watch
from harness.reports.markup import percent, snippet
from harness.reports.tables import Column, Rows, Table
from harness.statistics.significance import ALPHA, holm
from harness.testset.draft.drafts import read_examples
from retrievers.base import IndexedTexts, Query, Ranking

SIGNALS = ("top_score", "margin", "query_words")
LEAST = 20  # with fewer queries and equal values among them, the p of the test is wrong
SHARE = 0.9  # a top score is extreme if it is outside of the middle 90 % of those of the labelled queries
MOST, WORDED = 10, 5  # number of queries to label; most of them that are chosen for their words
WORDS = 10  # number of words that are listed
RULE = (
    f"Chosen from today's queries: first at most {WORDED} with words that neither documents nor labelled queries have; "
    f"then those whose top score is outside of the middle {percent(SHARE)} of the labelled queries' top scores. "
    "Near-duplicates of labelled queries and of each other are left out."
)


@dataclass(frozen=True)
class SignalShift:
    """The medians of a signal. p: of the two-sided Mann-Whitney test, with Holm's correction over the signals; NaN for
    fewer than LEAST queries.
    """

    signal: str
    labelled: float
    today: float
    p_holm: float


@dataclass(frozen=True)
class ToLabel:
    query_id: str
    text: str
    reason: str


@dataclass(frozen=True)
class QueriesToday:
    """Today's queries against the labelled ones.

    queries, labelled: their numbers. ranking: the name of the ranking from which the signals were computed.
    unseen, unseen_labelled: the number of queries with a word that no document has. words: words of today that neither
    documents nor labelled queries have, the most frequent first. to_label: the queries to label next, at most MOST.
    """

    queries: int
    labelled: int
    ranking: str
    signals: Sequence[SignalShift]
    unseen: int
    unseen_labelled: int
    words: Sequence[str]
    to_label: Sequence[ToLabel]

    @property
    def verdict(self) -> list[str]:
        """Return [a sentence] if today's queries differ from the labelled ones; otherwise []."""
        told = [
            f"{one.signal} has the median {one.today:.4g}, not {one.labelled:.4g} ({p_in_words(one.p_holm)})"
            for one in self.signals
            if one.p_holm <= ALPHA
        ]
        return [f"Today's queries differ from the labelled ones: {'; '.join(told)}."] if told else []

    @property
    def tables(self) -> list[Table]:
        columns = [Column("signal"), Column("labelled", "value"), Column("today", "value"), Column("p (Holm)", "p")]
        rows: Rows = [[one.signal, one.labelled, one.today, one.p_holm] for one in self.signals]
        said = [
            f"Medians over {counted(self.queries, 'query')} of today and {counted(self.labelled, 'labelled query')}, "
            f"from the ranking {self.ranking}. p: Mann-Whitney test, from {LEAST} queries on.",
            f"With a word that no document has: {percent(self.unseen / self.queries)} of today's queries, "
            f"{percent(self.unseen_labelled / self.labelled)} of the labelled ones."
            + (f" Words that labelled queries do not have either: {', '.join(self.words)}." if self.words else ""),
        ]
        listed: Rows = [[one.query_id, snippet(one.text), one.reason] for one in self.to_label]
        next_ones = Table("To label next", [Column("id"), Column("query"), Column("why")], listed, [RULE])
        return [Table("Today's queries", columns, rows, said), *([next_ones] if listed else [])]


def read_todays_queries(file: Path, plan: Plan) -> tuple[Query, ...]:
    """Read the queries of a file. Raise BadInput if it is empty, or if the plan cannot search for new queries."""
    why = "queries=FILE needs a search for new queries"
    if plan.query_text == "file":
        raise BadInput(f"{why}, but the run searched for texts from query.file. Leave out queries.")
    name, node = next(iter(plan.retriever.items()))
    steps.require_search(name, node, why)
    return read_examples(file, "queries").queries


def todays_queries(plan: Plan, session: Session, labelled_ranking: Ranking, today: tuple[Query, ...]) -> QueriesToday:
    """Compare today's queries with the labelled ones of the session, by the first ranking of the plan.

    labelled_ranking: that ranking for all queries of the session, at least one of which is labelled.
    """
    assert session.dataset.qrels is not None  # otherwise the run would have no scores
    of_today = replace(session.dataset, queries=today, qrels=None)
    other = replace(open_session(plan, of_today), cache=session.cache, timed="never")
    name, node = next(iter(plan.retriever.items()))
    ranking = steps.retrieve({name: node}, other, plan.depth)[name]
    graded = np.array([query.query_id in session.dataset.qrels.grades for query in session.queries], bool)
    inputs = [
        steps.CachedInputs(plan, {name: found}, one) for found, one in ((labelled_ranking, session), (ranking, other))
    ]
    values = {one: [signal_of(given, one, name, 1) for given in inputs] for one in SIGNALS}
    with stage("looking for words that no document has"):
        unseen = _unseen(plan, session, (session.queries, other.queries))
    known = [query.text for query, labelled in zip(session.queries, graded, strict=True) if labelled]
    asked = {word for words, labelled in zip(unseen[0], graded, strict=True) if labelled for word in words}
    fresh = [[word for word in words if word not in asked] for words in unseen[1]]
    counts = Counter(word for words in fresh for word in words)
    return QueriesToday(
        queries=len(today),
        labelled=int(graded.sum()),
        ranking=name,
        signals=_shifts({one: (before[graded], now) for one, (before, now) in values.items()}),
        unseen=sum(map(bool, unseen[1])),
        unseen_labelled=sum(bool(words) for words, labelled in zip(unseen[0], graded, strict=True) if labelled),
        words=sorted(counts, key=lambda word: (-counts[word], word))[:WORDS],
        to_label=_to_label(known, other.queries, fresh, values["top_score"][0][graded], values["top_score"][1]),
    )


def _unseen(plan: Plan, session: Session, groups: Sequence[Sequence[Query]]) -> list[list[list[str]]]:
    """Return for each query of each group its terms that no document has, by the tokenizer of the config."""
    with watch("words") as progress:
        terms = CachedTokenizer(session.cache, plan.tokenizer, lambda: plan.made("tokenizer"), progress)
        known = {*terms(IndexedTexts(session.dataset.documents)).vocabulary}
        lists = [terms([query.text for query in queries]).lists() for queries in groups]
    return [[[*dict.fromkeys(term for term in own if term not in known)] for own in group] for group in lists]


def _shifts(values: dict[str, tuple[np.ndarray, np.ndarray]]) -> list[SignalShift]:
    from scipy.stats import mannwhitneyu

    if min(len(values[SIGNALS[0]][0]), len(values[SIGNALS[0]][1])) < LEAST:
        return [SignalShift(name, float(np.median(a)), float(np.median(b)), np.nan) for name, (a, b) in values.items()]
    p = [
        1.0 if np.ptp(np.concatenate(pair)) == 0 else float(mannwhitneyu(*pair).pvalue)  # equal values have no order
        for pair in values.values()
    ]
    return [
        SignalShift(name, float(np.median(before)), float(np.median(now)), corrected)
        for (name, (before, now)), corrected in zip(values.items(), holm(np.array(p)).tolist(), strict=True)
    ]


def _to_label(
    known: Sequence[str],
    queries: Sequence[Query],
    fresh: Sequence[Sequence[str]],
    labelled_scores: np.ndarray,
    scores: np.ndarray,
) -> list[ToLabel]:
    """Choose queries by RULE. known: texts of labelled queries. fresh: new words of each query."""
    texts = [*known, *(query.text for query in queries)]
    with tempfile.TemporaryDirectory() as folder:
        pairs = find_near_duplicates(texts, len(texts), Path(folder))
    doubles = {pair.b - len(known) for pair in pairs}
    own = [place for place in range(len(queries)) if place not in doubles]
    low, high = np.quantile(labelled_scores, [(1 - SHARE) / 2, (1 + SHARE) / 2]).tolist()
    beyond = np.maximum(low - scores, scores - high)
    worded = sorted((place for place in own if fresh[place]), key=lambda place: -len(fresh[place]))[:WORDED]
    rest = [place for place in own if beyond[place] > 0 and place not in worded]
    extreme = sorted(rest, key=lambda place: -beyond[place])[: MOST - len(worded)]
    why = {place: f"new words: {some(fresh[place])}" for place in worded}
    middle = f"the middle {percent(SHARE)} of labelled queries: {low:.4g} to {high:.4g}"
    why |= {place: f"top score {scores[place]:.4g}; {middle}" for place in extreme}
    return [ToLabel(queries[place].query_id, queries[place].text, reason) for place, reason in why.items()]
