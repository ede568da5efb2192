"""What may be tried after a run: each idea with what it rests on, and the most that it could add.

A bound is computed from the run's lists and labels. What an idea usually brings of its bound is a *share*, which only
orders ideas. The shares below are rough and the same for all data: they say that a gate with a good signal wins most of
what a perfect gate would, that another ranking wins a fifth of what a perfect one would where it reads the language
better, and that settings of what is there win a few hundredths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.board.advice.evidence import Evidence
from harness.config import manual
from harness.config.text import counted
from harness.pipeline.run_config import RunConfig

# Shares of the bound. A learnt gate's is multiplied by how much better than chance its signal is.
GATES = {"auto": 0.8, "depth": 0.75, "classifier": 0.7}
STEMS = 0.25  # a tokenizer that reduces words of the language to their stems, where there was none
PLAIN = 0.02  # another tokenizer
BIGRAMS = {"HANGUL": 0.2, "HAN": 0.2, "THAI": 0.2}  # word forms that tokenizers part differently, or no spaces at all
OTHER_BIGRAMS = -0.05  # where spaces part words: McNamee and Mayfield (2004) found that n-grams need inflection to help
ENCODERS = {"lsa": 0.04, "use_multilingual": 0.04}  # added to BM25
MODEL = 0.3  # a large model that is on this machine, as an encoder or a reranker
LEARNED_FUSION, WEIGHTS, FUSIONS, PASSAGES, BM25 = 0.08, 0.03, 0.02, 0.03, 0.03
DEEPER, LAST_TURN, REWRITTEN, BEYOND = 0.05, 0.05, 0.3, 0.04
STALE = 0.6  # of a share, for each run with another value of the same key that is not the best one

STEMMERS = {"HANGUL": "kiwi", "LATIN": "snowball"}  # script of the documents -> the tokenizer that knows its language


@dataclass(frozen=True)
class Idea:
    """kind: what is changed. title: in a few words. why: the evidence, in one sentence.

    changes: group or key -> its values; several make a sweep. bound: the most that it can add to the objective.
    share: how much of that such a change usually brings. exact: whether the bound is what it brings on these queries.
    """

    kind: str
    title: str
    why: str
    changes: Mapping[str, Sequence[str]]
    bound: float
    share: float
    exact: bool = False


@dataclass(frozen=True)
class Beyond:
    """A number whose best value is the least or the greatest that was tried. value: one just beyond it, as text."""

    key: str
    value: str
    why: str


@dataclass(frozen=True, eq=False)
class Ground:
    """What ideas rest on.

    config, choices: of the run, resolved. script: of most letters of the documents. documents: how many there are.
    encoders, rerankers: choices whose models are on this machine. varied: key -> how many other values were tried.
    beyond: where runs got better up to the end of what was tried.
    """

    config: RunConfig
    choices: Mapping[str, str | None]
    evidence: Evidence
    script: str
    documents: int
    encoders: Sequence[str] = ()
    rerankers: Sequence[str] = ()
    varied: Mapping[str, int] = field(default_factory=dict)
    beyond: Sequence[Beyond] = ()


def ideas(ground: Ground) -> list[Idea]:
    """What may be tried, what is likely to bring most first; without what can add nothing, or hardly ever does."""
    found = [one for one in catalogue(ground) if one.bound > 0 and one.share > 0]
    return sorted(found, key=lambda one: -expected(one, ground))


def catalogue(ground: Ground) -> list[Idea]:
    """All that may be tried, in no order of worth."""
    return [*_gates(ground), *_fewer(ground), *_rankings(ground), *_orders(ground), *_queries(ground), *_edges(ground)]


def expected(one: Idea, ground: Ground) -> float:
    """What an idea is likely to add: its bound times its share, less where other values have been tried in vain."""
    tried = 0 if one.kind.startswith("beyond") else max((ground.varied.get(key, 0) for key in one.changes), default=0)
    return one.bound * one.share * STALE**tried


def _gates(ground: Ground) -> Iterator[Idea]:
    evidence, gate = ground.evidence, ground.choices.get("gate")
    if evidence.shown is None:
        return
    perfect = perfect_gate(evidence)
    needless = int((~evidence.needs).sum())
    if gate != "none":
        all_shown = _gain(evidence.shown[:, -1], evidence)
        why = f"The gate costs {all_shown:.4f}: without it, every query would have its documents."
        yield Idea(
            "gate", "No gate", why, {"gate": ["none"]}, all_shown, 1.0, exact=ground.choices.get("fusion") != "learned"
        )
    if not needless or not np.nan_to_num(evidence.shown[~evidence.needs, 0]).any():
        return  # withholding documents earns nothing
    wrong = int(evidence.kept[~evidence.needs].sum().round())
    signal = evidence.auroc
    told = (
        ""
        if signal is None
        else f" The signal {_signal_name(ground)} tells the two kinds apart with AUROC {signal:.3f}."
    )
    why = f"{wrong} of {counted(needless, 'query')} that need no documents get some.{told}"
    if gate in GATES:
        why = f"Out of fold, the gate is {perfect:.4f} below one that is always right."
    apart = 0.5 if signal is None else max(0.0, 2 * signal - 1)
    for choice, share in GATES.items():
        bound = perfect
        if choice == "depth":
            bound = _gain(evidence.shown.max(axis=1), evidence)
        left = 0.15 if gate in GATES else 1.0  # a gate that learns has had its chance
        if choice != gate:
            yield Idea("gate", f"A gate that learns from the labels ({choice})", why, {"gate": [choice]}, bound,
                       share * apart * left)  # fmt: skip


def _edges(ground: Ground) -> Iterator[Idea]:
    """Values beyond the end of what was tried, where the best lies there."""
    rankings = ranked(ground.evidence.perfect, ground.evidence)
    for one in ground.beyond:
        bound = perfect_gate(ground.evidence) if one.key.startswith("gate.") else rankings
        yield Idea(f"beyond {one.key}", f"Beyond what was tried: {one.key}", one.why, {one.key: [one.value]}, bound,
                   BEYOND)  # fmt: skip


def perfect_gate(evidence: Evidence) -> float:
    """What a gate that is always right would add to the run's value."""
    if evidence.shown is None:
        return 0.0
    changes = ~evidence.needs | (evidence.kept < 1)
    return _gain(np.where(changes, np.maximum(evidence.shown[:, 0], evidence.shown[:, -1]), evidence.values), evidence)


def _signal_name(ground: Ground) -> str:
    return str(ground.config.gate.get("signal", "top_score"))


def _fewer(ground: Ground) -> Iterator[Idea]:
    """Other values of top_k, whose effect is known."""
    evidence = ground.evidence
    if evidence.shown is None or not evidence.reads_shown or ground.choices.get("fusion") == "learned":
        return
    for k in range(1, evidence.top_k):
        kept = evidence.kept * evidence.shown[:, k] + (1 - evidence.kept) * evidence.shown[:, 0]
        gain = _gain(kept, evidence)
        why = f"On these queries the first {counted(k, 'document')} alone would score {evidence.value + gain:.4f}."
        yield Idea("top_k", f"Return {counted(k, 'document')}", why, {"top_k": [str(k)]}, gain, 0.5, exact=True)


def _rankings(ground: Ground) -> Iterator[Idea]:
    """Other retrievers, tokenizers, encoders and settings, which may find and rank anything."""
    evidence, names = ground.evidence, set(ground.config.retriever)
    bound, why = ranked(evidence.perfect, evidence), _where(evidence)
    lexical = names & {"bm25", "bigram"}
    bigrams = BIGRAMS.get(ground.script, OTHER_BIGRAMS)
    if "tokenizer" in ground.config.active and "bm25" in names:
        own, stemmer = ground.choices.get("tokenizer"), STEMMERS.get(ground.script)
        for choice in dict.fromkeys(filter(None, (stemmer, "char_ngram", "word"))):
            share = STEMS if choice == stemmer else PLAIN if own != stemmer else 0.0
            told = f"The documents are in {ground.script.capitalize()} script. " if choice == stemmer else ""
            if choice != own:
                yield Idea("tokenizer", f"Other tokens: {choice}", told + why, {"tokenizer": [choice]}, bound, share)
    for choice, encoder, share in _mixtures(ground, bigrams):
        if not names & set(COMPONENTS[choice]):
            continue  # of another kind, such as a search engine
        changes = {"retriever": [choice], **({"encoder": [encoder]} if encoder else {})}
        title = f"Add {' and '.join(NEW[one] for one in COMPONENTS[choice] if one not in names) or 'another encoder'}"
        yield Idea("retriever", title, why, changes, bound, share)
    if "bm25" in names and lexical:
        yield Idea("bm25", "BM25's k1 and b", why,
                   {"retriever.bm25.k1": ["0.9", "1.5", "2.4"], "retriever.bm25.b": ["0.4", "0.75", "0.9"]}, bound,
                   BM25)  # fmt: skip
    if isinstance(dense := ground.config.retriever.get("dense"), Mapping) and "passages" in dense:
        yield Idea("passages", "Passages of documents", why,
                   {"retriever.dense.passages": ["none", "sentences", "window"]}, bound, PASSAGES)  # fmt: skip


COMPONENTS = {
    "hybrid_lexical": ("bm25", "bigram"),
    "hybrid_light": ("bm25", "bigram", "dense"),
    "hybrid": ("bm25", "dense"),
}
NEW = {
    "bm25": "BM25",
    "bigram": "BM25 on character bigrams",
    "dense": "an encoder",
}


def _mixtures(ground: Ground, bigrams: float) -> Iterator[tuple[str, str | None, float]]:
    """(retriever, encoder if it is to be named, share), of mixtures other than the run's."""
    names, own = set(ground.config.retriever), ground.choices.get("encoder")
    adds = 0.0 if "bigram" in names else bigrams
    left = 0.0 if "bigram" not in names else -bigrams  # what leaving them out brings
    light = 0.0 if "dense" in names else ENCODERS["use_multilingual"]
    if names != {"bm25", "bigram"}:
        yield "hybrid_lexical", None, adds - light if "dense" in names else adds
    if names != {"bm25", "bigram", "dense"}:
        yield "hybrid_light", None, adds + light
    for encoder in ground.encoders:
        if "dense" in names and encoder == own:
            continue
        share = ENCODERS.get(encoder, MODEL)
        base = ENCODERS.get(own or "", MODEL) if "dense" in names else 0.0
        if "bigram" in names:
            yield "hybrid_light", encoder, max(share - base, PLAIN)
        yield "hybrid", encoder, (max(share - base, PLAIN) if "dense" in names else share) + left


def _orders(ground: Ground) -> Iterator[Idea]:
    """Other orders of what was found: fusions and rerankers; and more depth."""
    evidence, config = ground.evidence, ground.config
    if evidence.lists is None:
        return
    if evidence.lists.rankings and len(config.retriever) > 1:
        yield from _fusions(ground, ranked(evidence.pooled, evidence))
    for choice in ground.rerankers:
        depth = int(config.rerank.get("depth") or 0) or 20
        bound = ranked(evidence.reordered(depth), evidence)
        why = f"Relevant documents of {counted(_within(evidence, 2, depth), 'query')} stand at ranks 2 to {depth}."
        if choice != ground.choices.get("rerank"):
            yield Idea("reranker", f"A reranker ({choice})", why, {"rerank": [choice]}, bound, MODEL)
    never = _never(evidence)
    if never and config.depth < ground.documents:
        deeper = min(3 * config.depth, ground.documents)
        bound = ranked(evidence.perfect, evidence, ~np.isfinite(_first(evidence)))
        why = f"The relevant document of {counted(never, 'query')} is nowhere among the first {config.depth}."
        yield Idea(
            "depth", f"{deeper} documents in place of {config.depth}", why, {"depth": [str(deeper)]}, bound, DEEPER
        )


def _fusions(ground: Ground, bound: float) -> Iterator[Idea]:
    evidence, first = ground.evidence, next(iter(ground.config.retriever))
    there = int((evidence.needs & np.isfinite(_first(evidence))).sum())
    why = (
        f"All rankings together have a relevant document for {there} of "
        f"{counted(int(evidence.needs.sum()), 'query')} that need one; the score would be "
        f"{evidence.value + bound:.4f} if these came first."
    )
    if "learned" in manual.choices("fusion") and ground.choices.get("fusion") != "learned":
        yield Idea(
            "fusion", "A fusion that learns from the labels", why, {"fusion": ["learned"]}, bound, LEARNED_FUSION
        )
    yield Idea("weights", f"Other weights of {first}", why,
               {f"fusion.weights.{first}": ["0.3", "0.5", "1", "2", "3"]}, bound, WEIGHTS)  # fmt: skip
    others = [
        one for one in ("weighted_sum", "combmnz", "distribution_based", "rrf") if one in manual.choices("fusion")
    ]
    yield Idea("fusion", "Other fusions", why, {"fusion": others}, bound, FUSIONS)


def _queries(ground: Ground) -> Iterator[Idea]:
    """Other texts to search for."""
    evidence, own = ground.evidence, ground.config.query_text
    many = evidence.multi_turn & evidence.needs
    if not many.any():
        return
    bound = ranked(evidence.perfect, evidence, many)
    lost = float((1 - evidence.values[many]).mean())
    why = f"{counted(int(many.sum()), 'query')} are conversations; they lose {lost:.4f} each."
    other = "user_turns" if own == "last" else "last"
    yield Idea("query", f"Search for {'the last turn' if other == 'last' else 'all user turns'}", why,
               {"query.text": [other]}, bound, LAST_TURN)  # fmt: skip
    if ground.config.llm.get("model") and own != "rewrite":
        yield Idea("query", "Let the language model rewrite conversations", why, {"query.text": ["rewrite"]}, bound,
                   REWRITTEN)  # fmt: skip


def _gain(values: np.ndarray, evidence: Evidence) -> float:
    """How much the mean rises if the queries have these values."""
    return float(values.mean() - evidence.values.mean())


def ranked(values: np.ndarray, evidence: Evidence, rows: np.ndarray | None = None) -> float:
    """The same where the gate decides as it does, and lists that are shown have these values.

    rows: bool [Q], the queries whose lists change; None: all. Those that need no documents keep their values.
    """
    changed = evidence.needs if rows is None else evidence.needs & rows
    return _gain(np.where(changed, evidence.kept * values, evidence.values), evidence)


def _first(evidence: Evidence) -> np.ndarray:
    """The best rank of a relevant document in any component ranking, float64 [Q]."""
    return np.min(list(evidence.first_hits.values()), axis=0)


def _within(evidence: Evidence, low: int, high: int | None = None) -> int:
    """How many queries that need documents have their first relevant one at these ranks."""
    first = _first(evidence)[evidence.needs]
    return int(((first >= low) & (np.isfinite(first) if high is None else first <= high)).sum())


def _never(evidence: Evidence) -> int:
    """How many of them have it nowhere."""
    return int((~np.isfinite(_first(evidence)[evidence.needs])).sum())


def _where(evidence: Evidence) -> str:
    """Where the first relevant documents stand, in one sentence."""
    needs = int(evidence.needs.sum())
    if evidence.lists is None:
        lost = int((evidence.values[evidence.needs] < 1).sum())
        return f"{lost} of {counted(needs, 'query')} that need documents are not ranked perfectly."
    top, low, never = _within(evidence, 1, 1), _within(evidence, 2), _never(evidence)
    return (
        f"Of {counted(needs, 'query')} that need documents, {top} have a relevant one first in some ranking, {low} "
        f"only further down, and {never} nowhere."
    )
