"""What an automatic sweep may try: systems, gates and fusions that are installed here and suit the data.

Nothing here depends on labels, except that gates are left out where every labelled query needs documents. The order of
the systems is that of their promise for the time that they take.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from harness.commands.sweep.auto.ascent import System, Words
from harness.commands.sweep.auto.costs import Costs
from harness.commands.sweep.plan import Planner, Trial
from harness.config.canonical import nodes
from harness.data.dataset import Dataset, conversations
from harness.data.shards import IndexedTexts
from harness.gates.payoff import fixed_mean
from harness.pipeline.run_config import RunConfig
from harness.testset import scripts
from retrievers.base import BadInput
from retrievers.dense.models import ModelSource, here

ENCODERS = ("bge_m3", "kure_v1", "multilingual_e5_large", "multilingual_e5_large_instruct", "all_minilm_l6_v2")
RERANKERS = ("cross_encoder", "bge_m3_colbert")
SUITED = {"Korean": ("kiwi", "char_ngram", "word"), "English": ("word", "snowball")}  # language -> tokenizers
GATES = ("auto", "depth", "classifier")
FUSIONS: tuple[Words, ...] = (
    ("fusion=rrf",),
    ("fusion=combmnz",),
    ("fusion=weighted_sum", "fusion.normalise=min_max"),
    ("fusion=distribution_based",),
)
PARAMETERS: tuple[Words, ...] = (  # of BM25, beside its own
    ("retriever.bm25.k1=0.9", "retriever.bm25.b=0.4"),
    ("retriever.bm25.k1=2.4", "retriever.bm25.b=0.75"),
)


@dataclass(frozen=True)
class Recipe:
    """A kind of system. words: what chooses it. promise: how much better than plain BM25 such a system usually is, in
    points of the objective: a rough order, by which the budget is spent. lexical: whether a tokenizer matters to it.
    bigrams: whether it has BM25 on character bigrams beside that on the tokenizer.
    """

    words: Words
    promise: float
    lexical: bool = True
    bigrams: bool = False


RECIPES = (
    Recipe(("retriever=bm25",), 0.5),
    Recipe(("retriever=hybrid_lexical",), 2.0, bigrams=True),
    Recipe(("retriever=hybrid_light",), 5.0, bigrams=True),
    Recipe(("retriever=hybrid", "encoder=lsa"), 1.0),
    *(Recipe(("retriever=hybrid_light", f"encoder={name}"), 9.0, bigrams=True) for name in ENCODERS),
    *(Recipe(("retriever=dense", f"encoder={name}"), 6.0, lexical=False) for name in ENCODERS),
    Recipe(("retriever=bge_m3_sparse",), 6.0, lexical=False),
    *(Recipe(("retriever=hybrid_lexical", f"rerank={name}"), 8.0, bigrams=True) for name in RERANKERS),
)


@dataclass(frozen=True)
class Candidate:
    """A system that can run. trial: as it is, without a gate. promise: as of its recipe."""

    system: System
    trial: Trial
    promise: float


@dataclass(frozen=True)
class Catalogue:
    """candidates: the baseline first, then by promise and cost. gates: the first one is the baseline's.

    fusions: the first one is what a system has by itself. weigh: whether weights may be tried.
    left_out: (overrides as text, why) of what cannot be tried here.
    """

    candidates: tuple[Candidate, ...]
    gates: tuple[Words, ...]
    fusions: tuple[Words, ...]
    weigh: bool
    left_out: tuple[tuple[str, str], ...]


def catalogue(planner: Planner, dataset: Dataset, base: Trial, costs: Costs) -> Catalogue:
    """The catalogue for a dataset. base: a trial without overrides of its own, which can run.

    What is fixed on the command line or in harness.yaml is kept. BadInput if nothing can run.
    """
    fixed = {_key(word) for word in planner.fixed}
    gates, unneeded = _gates(fixed, dataset, base)
    found, left_out = _systems(planner, fixed, dataset, base, gates[0])
    if not found:
        raise BadInput(f"sweep=auto finds nothing that can run here: {left_out[0][0]}: {left_out[0][1]}")
    return Catalogue(
        candidates=_ordered(found, costs),
        gates=gates,
        fusions=((),) if "fusion" in fixed else ((), *FUSIONS),
        weigh=not any(key.startswith("fusion.weights") for key in fixed),
        left_out=(*left_out, *unneeded),
    )


def check_request(base: Mapping[str, Any], swept: Iterable[str], fixed: Iterable[str]) -> None:
    """BadInput for what sweep=auto cannot mean. base: the config that all trials share. swept: keys."""
    if keys := list(swept):
        raise BadInput(
            f"sweep=auto chooses the values of keys itself: leave out the list of {keys[0]}. One value, such as "
            f"{keys[0]}=NAME, narrows what it tries."
        )
    if recipe := next((word for word in fixed if _key(word) == "experiment"), None):
        raise BadInput(f"{recipe} sets what sweep=auto chooses: leave one of them out.")
    if "retriever" not in base:
        raise BadInput("sweep=auto tries retrievers: it has nothing to try for a text task.")
    if base["objectives"] and len(base["objectives"]) > 1:
        raise BadInput("sweep=auto goes by one objective: leave out objectives, or give one.")
    try:
        fixed_mean(base["objective"])
    except BadInput:
        raise BadInput(
            f"objective={base['objective']} is not a mean over a fixed set of queries, which sweep=auto needs to score "
            "its choice on queries that it has not seen. Choose another, such as objective=mrr@10."
        ) from None


def _gates(fixed: set[str], dataset: Dataset, base: Trial) -> tuple[tuple[Words, ...], list[tuple[str, str]]]:
    """(the gates, those that are left out with the reason)."""
    if any(key == "gate" or key.startswith("gate.") for key in fixed):
        return ((),), []
    assert dataset.qrels is not None, "the planner refuses trials without labels"
    labelled = [query.query_id for query in dataset.queries if query.query_id in dataset.qrels.grades]
    if all(dataset.qrels.needs_retrieval(query_id) for query_id in labelled):
        why = "every labelled query needs documents: there is nothing to withhold"
        return (("gate=none",),), [(f"gate={','.join(GATES)}", why)]
    return (("gate=none",), *((f"gate={name}",) for name in GATES)), []


def _systems(
    planner: Planner, fixed: set[str], dataset: Dataset, base: Trial, gate: Words
) -> tuple[list[Candidate], list[tuple[str, str]]]:
    """(the systems that can run here, those that cannot with the reason). gate: the baseline's."""
    found: dict[str, Candidate] = {}  # by trial key: what differs in nothing that matters is tried once
    left_out: dict[str, str] = {}
    for recipe, words, promise in _combinations(fixed, dataset, base):
        name = " ".join(recipe.words)
        if name in left_out:
            continue
        config, _ = planner.composer(*planner.words((*words, *gate)))
        if missing := _missing_model(config):
            left_out[name] = missing
            continue
        trial = planner.trial(0, (*words, *gate))
        if trial.error:
            left_out[name] = str(trial.error).partition("\n")[0]
            continue
        names = tuple(config["retriever"])
        reranked = "rerank" in RunConfig.of(trial.config).active
        system = System(words, names, fusible=len(names) > 1 and not reranked)
        found.setdefault(trial.key, Candidate(system, trial, promise))
    return list(found.values()), list(left_out.items())


def _combinations(fixed: set[str], dataset: Dataset, base: Trial) -> list[tuple[Recipe, Words, float]]:
    """(recipe, overrides, promise) of all systems that may suit the data."""
    several = any(conversations(dataset.queries).values())
    texts: list[Words] = [()] if {"query.text", "query"} & fixed or not several else [(), ("query.text=last",)]
    own = [()] if "tokenizer" in fixed else [(f"tokenizer={one}",) for one in _tokenizers(dataset, base)]
    tokenizers: list[Words] = list(own)
    of_bm25 = any(key.startswith("retriever.bm25.") for key in fixed)
    combined: list[tuple[Recipe, Words, float]] = []
    for recipe in _recipes(fixed):
        if not recipe.lexical:
            variations = [(*text,) for text in texts]
        else:  # one thing at a time: the more systems, the luckier the best of them
            tuned = [] if of_bm25 or "retriever" in fixed else PARAMETERS
            cut = [one for one in tokenizers if not (recipe.bigrams and one == ("tokenizer=char_ngram",))]
            first, *others = cut or tokenizers
            variations = [first, *others, *((*first, *text) for text in texts[1:]), *((*first, *one) for one in tuned)]
        for place, variation in enumerate(variations):
            promise = recipe.promise / (1 + bool(place))  # a variation promises little beyond the system itself
            combined.append((recipe, (*recipe.words, *variation), promise))
    return combined


def _recipes(fixed: set[str]) -> list[Recipe]:
    """The kinds of systems, without those that contradict what is fixed."""
    if "retriever" in fixed:
        plain = [Recipe((), 1.0)]
        return plain if "rerank" in fixed else [*plain, *(Recipe((f"rerank={name}",), 8.0) for name in RERANKERS)]
    own = {"encoder", "rerank"} & fixed
    kept = [one for one in RECIPES if not any(_key(word) in own for word in one.words)]
    if "encoder" in fixed:
        kept.append(Recipe(("retriever=hybrid",), 9.0))
    return kept


def _tokenizers(dataset: Dataset, base: Trial) -> list[str]:
    """The tokenizers that suit the language of the documents; the run's own is the first."""
    language = scripts.language(IndexedTexts(dataset.documents))
    suited = SUITED.get(language, ("word", "char_ngram"))
    return list(dict.fromkeys([base.choices["tokenizer"] or suited[0], *suited]))


def _missing_model(config: Mapping[str, Any]) -> str:
    """Why a config cannot run without a download; "" if it can."""
    for _, node in nodes([config["retriever"], config["rerank"]]):
        if node.get("_target_") and ("model" in node or "path" in node) and (node.get("model") or node.get("path")):
            try:
                if here(ModelSource(node.get("model"), node.get("revision"), node.get("path"))) is None:
                    return f"the model {node.get('model') or node.get('path')} is not on this machine"
            except BadInput as error:
                return str(error)
    return ""


def _ordered(found: Sequence[Candidate], costs: Costs) -> tuple[Candidate, ...]:
    """The baseline, then what promises most for a second of work, given all that was computed before it."""
    always = replace(costs, timed=None)  # the order is the same when a sweep is started again
    ordered, left = [found[0]], list(found[1:])
    there = costs.made(found[0].trial)
    while left:
        best = max(left, key=lambda one: one.promise / (1 + always.seconds(one.trial, there)))
        left.remove(best)
        ordered.append(best)
        there |= costs.made(best.trial)
    return tuple(ordered)


def _key(word: str) -> str:
    return word.partition("=")[0].lstrip("+~")
