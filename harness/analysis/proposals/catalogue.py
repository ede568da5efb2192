"""The catalogue of proposals: all that can be tried from a configuration, with bounds and usual gains.

A bound is computed from the lists and labels of a run; without a run it is 1, the maximum of a mean. The *share* of a
proposal is the part of the bound that such a proposal usually adds. Shares are rough estimates, the same for all data.
They only decide the order of the proposals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec

import numpy as np

from harness.analysis.proposals.costs import Cost
from harness.analysis.proposals.evidence import RunEvidence
from harness.config import manual, yaml_files
from harness.config.text import counted
from harness.data.scripts import STEMMERS, Writing
from harness.experiment.plan import Plan
from harness.storage.typed import HIDDEN
from retrievers.dense.models import INSTALL, PACKAGES, ModelSource, here

# Shares of the bound. A gate's share is multiplied by 2 * A - 1, where A is its signal's AUROC; by 0.5 if A is unknown.
GATES = {"auto": 0.8, "depth": 0.75, "classifier": 0.7}
STEMS = 0.25  # a tokenizer that knows the word forms of the language, in place of one that does not
PLAIN = 0.02  # any other tokenizer
BIGRAMS = 0.2  # BM25 on bigrams, if tokenizers split word forms inconsistently, or if no spaces separate words
OTHER_BIGRAMS = -0.05  # BM25 on bigrams in other cases: n-grams help inflected words only (McNamee and Mayfield 2004)
ENCODERS = {"lsa": 0.04, "use_multilingual": 0.04}  # encoders that need no download, added to BM25
MODEL = 0.3  # a large model on this machine, as an encoder or a reranker
MODEL_ALONE = 0.2  # a large model as an encoder without BM25
LEXICAL = 0.1  # BM25 added to an encoder
LEARNED_FUSION, WEIGHTS, FUSIONS, PASSAGES, BM25 = 0.08, 0.03, 0.02, 0.03, 0.03
DEEPER, LAST_TURN, REWRITTEN, BEYOND = 0.05, 0.05, 0.3, 0.04
STALE = 0.6  # a proposal's share is multiplied by this for each value of its key that was tried without success
LEFT = 0.15  # the share of a gate is multiplied by this if the run already has a gate that learns

COMPONENTS = {  # choice of retriever -> its component rankings
    "hybrid_lexical": ("bm25", "bigram"),
    "hybrid_light": ("bm25", "bigram", "dense"),
    "hybrid": ("bm25", "dense"),
    "dense": ("dense",),
    "bge_m3_sparse": ("bge_m3_sparse",),
}
ADDED = {"bm25": "BM25", "bigram": "BM25 on character bigrams", "dense": "an encoder"}
BM25_VALUES = {"k1": ("0.9", "1.5", "2.4"), "b": ("0.4", "0.75", "0.9")}
BM25_FEW = (("0.9", "0.4"), ("2.4", "0.75"))  # (k1, b) for short and for long documents
FUSION_CHOICES = ("weighted_sum", "combmnz", "distribution_based", "rrf")
WEIGHT_VALUES = ("0.3", "0.5", "1", "2", "3")
NOT_INSTALLED = f"the model's packages are not installed ({INSTALL})"
PASSAGE_CHOICES = ("none", "sentences", "window")


@dataclass(frozen=True)
class Proposal:
    """One thing to try.

    kind: the kind of change. why: the evidence in one sentence; "" without evidence.
    changes: group or key -> its values. Several values make a sweep.
    few: the combinations that sweep=auto tries. If (), it tries all first values together, then the second values, etc.
    bound: the most that the change can add to the objective. share: the part of the bound that it usually adds.
    exact: whether the change adds exactly the bound on these queries.
    cost: the cost to try it. verb, words: the command `harness VERB WORDS`, without words that name the tracking store.
    """

    kind: str
    title: str
    why: str
    changes: Mapping[str, Sequence[str]] = field(metadata=HIDDEN)
    bound: float
    share: float = field(metadata=HIDDEN)
    exact: bool = False
    few: Sequence[tuple[str, ...]] = field(default=(), metadata=HIDDEN)
    cost: Cost | None = None
    verb: str = "run"
    words: tuple[str, ...] = ()
    json_too = ("expected",)

    @property
    def expected(self) -> float:
        """The usual gain of such a change. It decides the order of the proposals."""
        return self.bound * self.share


@dataclass(frozen=True, eq=False)
class Setup:
    """A configuration and the facts about its data that the catalogue needs.

    choices: config group -> choice.
    needless: the number of labelled queries that need no documents.
    conversations: the number of labelled queries that need documents and have several user turns.
    encoders, rerankers: the choices that work on this machine.
    evidence: None before a run.
    varied: group or key -> the number of tried values other than this configuration's.
    beyond: proposals to go beyond the tried values.
    """

    plan: Plan
    choices: Mapping[str, str | None]
    writing: Writing
    documents: int
    needless: int = 0
    conversations: int = 0
    encoders: Sequence[str] = tuple(ENCODERS)
    rerankers: Sequence[str] = ()
    evidence: RunEvidence | None = None
    varied: Mapping[str, int] = field(default_factory=dict)
    beyond: Sequence[Proposal] = ()

    @property
    def names(self) -> set[str]:
        return set(self.plan.retriever)

    @property
    def bigrams(self) -> float:
        """The usual gain by BM25 on character bigrams, as a share of the greatest possible gain."""
        return BIGRAMS if self.writing.reads_bigrams else OTHER_BIGRAMS

    @cached_property
    def rankings(self) -> float:
        """The gain of perfect rankings."""
        return ranked(self.evidence.perfect, self.evidence) if self.evidence else 1.0

    @cached_property
    def ranks(self) -> str:
        """A sentence about the ranks of the first relevant documents; "" without evidence."""
        evidence = self.evidence
        if evidence is None:
            return ""
        needs = int(evidence.needs.sum())
        if evidence.lists is None:
            lost = int((evidence.values[evidence.needs] < 1).sum())
            return f"{lost} of {counted(needs, 'query')} that need documents are not ranked perfectly."
        top, low, never = evidence.first_within(1, 1), evidence.first_within(2), evidence.never
        return (
            f"Of {counted(needs, 'query')} that need documents, {top} have a relevant one first in some ranking, {low} "
            f"only further down, and {never} nowhere."
        )


def proposals(setup: Setup) -> list[Proposal]:
    """Return the proposals that can add something, the greatest usual gain first."""
    found = [one for one in catalogue(setup) if one.bound > 0 and one.share > 0]
    return sorted(found, key=lambda one: -one.expected)


def catalogue(setup: Setup) -> list[Proposal]:
    """Return all proposals, unsorted. Each value tried without success lowers the share of its proposal."""
    found = [
        *_gates(setup),
        *_fewer(setup),
        *_tokenizers(setup),
        *_mixtures(setup),
        *_settings(setup),
        *_orders(setup),
        *_queries(setup),
    ]
    tried = (max(setup.varied.get(key, 0) for key in one.changes) for one in found)
    fresh = (replace(one, share=one.share * STALE**count) for one, count in zip(found, tried, strict=True))
    return [*fresh, *setup.beyond]


def _gates(setup: Setup) -> Iterator[Proposal]:
    evidence, gate = setup.evidence, setup.choices.get("gate")
    if evidence is None:
        if not setup.needless:
            known = {"none": 1.0} if gate != "none" else {}
        else:
            known = {choice: share for choice, share in GATES.items() if gate not in GATES}
        for choice, share in known.items():
            yield Proposal("gate", _gate_title(choice), "", {"gate": [choice]}, 1.0, share)
        return
    if evidence.shown is None:
        return
    if gate != "none":
        all_shown = gain(evidence.shown[:, -1], evidence)
        why = f"Without a gate, every query would get documents, and the score would be {all_shown:.4f} higher."
        exact = setup.choices.get("fusion") != "learned"
        yield Proposal("gate", _gate_title("none"), why, {"gate": ["none"]}, all_shown, 1.0, exact)
    needless = ~evidence.needs
    if not needless.any() or not np.nan_to_num(evidence.shown[needless, 0]).any():
        return  # no gain from withholding documents
    perfect, signal = perfect_gate(evidence), evidence.auroc
    apart = 0.5 if signal is None else max(0.0, 2 * signal - 1)
    if gate in GATES:
        why = f"Out of fold, the gate scores {perfect:.4f} less than a gate that is always right."
    else:
        wrong, count = int(evidence.kept[needless].sum().round()), counted(int(needless.sum()), "query")
        name = setup.plan.gate.get("signal", "top_score")
        told = f" Signal {name} tells such queries from all others: AUROC {signal:.3f}." if signal is not None else ""
        why = f"{wrong} of {count} that need no documents still get some.{told}"
    for choice in (one for one in GATES if one != gate):
        bound = gain(evidence.shown.max(axis=1), evidence) if choice == "depth" else perfect
        share = GATES[choice] * apart * (LEFT if gate in GATES else 1.0)
        yield Proposal("gate", _gate_title(choice), why, {"gate": [choice]}, bound, share)


def _gate_title(choice: str) -> str:
    return "No gate" if choice == "none" else f"A gate that learns from the labels ({choice})"


def _fewer(setup: Setup) -> Iterator[Proposal]:
    evidence = setup.evidence
    if evidence is None or evidence.shown is None or not evidence.reads_shown:
        return
    if setup.choices.get("fusion") == "learned":
        return
    for k in range(1, evidence.top_k):
        more = gain(evidence.kept * evidence.shown[:, k] + (1 - evidence.kept) * evidence.shown[:, 0], evidence)
        why = f"With only the first {counted(k, 'document')}, the score would be {evidence.value + more:.4f}."
        yield Proposal("top_k", f"Return {counted(k, 'document')}", why, {"top_k": [str(k)]}, more, 0.5, exact=True)


def _tokenizers(setup: Setup) -> Iterator[Proposal]:
    if "tokenizer" not in setup.plan.active or "bm25" not in setup.names:
        return
    own, language, script = setup.choices.get("tokenizer"), setup.writing.language, setup.writing.script
    better = setup.writing.better_tokenizer(own)
    stemmer = STEMMERS.get(language) or (better.name if better else "snowball" if script == "LATIN" else None)
    for choice in dict.fromkeys(filter(None, (stemmer, "char_ngram", "word"))):
        share = STEMS if choice == stemmer else PLAIN if own != stemmer else 0.0
        told = f"The documents are in {script.capitalize()} script. " if choice == stemmer and setup.ranks else ""
        if choice != own:
            changes = {"tokenizer": [choice]}
            why = told + setup.ranks
            yield Proposal("tokenizer", f"Other tokens: {choice}", why, changes, setup.rankings, share)


def _mixtures(setup: Setup) -> Iterator[Proposal]:
    names = setup.names
    if not names <= ADDED.keys():
        return  # some component is not in ADDED, for example a search engine
    for choice, encoder, share in _mixture_shares(setup):
        changes = {"retriever": [choice], **({"encoder": [encoder]} if encoder else {})}
        parts = COMPONENTS[choice]
        if names & set(parts):
            title = f"Add {' and '.join(ADDED[one] for one in parts if one not in names) or 'another encoder'}"
        else:
            title = f"Another ranking: {encoder or choice}"
        yield Proposal("retriever", title, setup.ranks, changes, setup.rankings, share)


def _mixture_shares(setup: Setup) -> Iterator[tuple[str, str | None, float]]:
    """Yield (retriever, encoder or None for its default, share) for mixtures of rankings that the run does not use."""
    names, own, lexical = setup.names, setup.choices.get("encoder"), bool(setup.names & {"bm25", "bigram"})
    adds = 0.0 if "bigram" in names else setup.bigrams
    left = -setup.bigrams if "bigram" in names else 0.0  # the gain from leaving out bigrams
    light = 0.0 if "dense" in names else ENCODERS["use_multilingual"]
    if lexical and names != {"bm25", "bigram"}:
        yield "hybrid_lexical", None, adds
    if names == {"dense"}:
        yield "hybrid", None, LEXICAL
        yield "hybrid_light", None, LEXICAL + adds
    elif names != {"bm25", "bigram", "dense"}:
        yield "hybrid_light", None, adds + light
    base = ENCODERS.get(own or "", MODEL) if "dense" in names else 0.0
    for encoder in setup.encoders:
        if "dense" in names and encoder == own:
            continue
        share = ENCODERS.get(encoder, MODEL)
        instead = max(share - base, PLAIN) if "dense" in names else share
        if "bigram" in names:
            yield "hybrid_light", encoder, max(share - base, PLAIN)
        yield "hybrid", encoder, instead + left
        if encoder not in ENCODERS and lexical and "dense" not in names:
            yield "dense", encoder, MODEL_ALONE
    if "bge_m3" in setup.encoders:
        yield "bge_m3_sparse", None, MODEL_ALONE


def _settings(setup: Setup) -> Iterator[Proposal]:
    if "bm25" in setup.names:
        changes = {f"retriever.bm25.{name}": values for name, values in BM25_VALUES.items()}
        yield Proposal("bm25", "BM25's k1 and b", setup.ranks, changes, setup.rankings, BM25, few=BM25_FEW)
    if isinstance(dense := setup.plan.retriever.get("dense"), Mapping) and "passages" in dense:
        cut = {"retriever.dense.passages": PASSAGE_CHOICES}
        yield Proposal("passages", "Passages of documents", setup.ranks, cut, setup.rankings, PASSAGES)


def _orders(setup: Setup) -> Iterator[Proposal]:
    evidence, config = setup.evidence, setup.plan
    if evidence and evidence.lists is None:
        return
    if len(config.retriever) > 1 and not (evidence and evidence.lists and not evidence.lists.rankings):
        yield from _fusions(setup)
    for choice in setup.rerankers:
        depth = int(config.rerank.get("depth") or 0) or 20
        bound = ranked(evidence.reordered(depth), evidence) if evidence else 1.0
        second = evidence.first_within(2, depth) if evidence else 0
        why = f"Relevant documents of {counted(second, 'query')} are at ranks 2 to {depth}." if evidence else ""
        if choice != setup.choices.get("rerank"):
            yield Proposal("reranker", f"A reranker ({choice})", why, {"rerank": [choice]}, bound, MODEL)
    deeper = min(3 * config.depth, setup.documents)
    if deeper > config.depth and not (evidence and not evidence.never):
        bound = ranked(evidence.perfect, evidence, ~np.isfinite(evidence.first_hit)) if evidence else 1.0
        count = counted(evidence.never, "query") if evidence else ""
        why = f"For {count}, no relevant document is among the first {config.depth}." if evidence else ""
        title = f"Retrieve {deeper} documents in place of {config.depth}"
        yield Proposal("depth", title, why, {"depth": [str(deeper)]}, bound, DEEPER)


def _fusions(setup: Setup) -> Iterator[Proposal]:
    evidence, why, bound = setup.evidence, "", 1.0
    if evidence:
        bound = ranked(evidence.pooled, evidence)
        there, needs = int((evidence.needs & np.isfinite(evidence.first_hit)).sum()), int(evidence.needs.sum())
        why = (
            f"All rankings together have a relevant document for {there} of {counted(needs, 'query')} that need "
            f"documents. With these documents first, the score would be {evidence.value + bound:.4f}."
        )
    if setup.choices.get("fusion") != "learned":
        title = "A fusion that learns from the labels"
        yield Proposal("fusion", title, why, {"fusion": ["learned"]}, bound, LEARNED_FUSION)
    for name in setup.plan.retriever:
        weights = {f"fusion.weights.{name}": WEIGHT_VALUES}
        yield Proposal("weights", f"Other weights of {name}", why, weights, bound, WEIGHTS)
    yield Proposal("fusion", "Other fusions", why, {"fusion": FUSION_CHOICES}, bound, FUSIONS)


def _queries(setup: Setup) -> Iterator[Proposal]:
    evidence, own = setup.evidence, setup.plan.query_text
    many = evidence.multi_turn & evidence.needs if evidence else None
    if not (setup.conversations if many is None else many.any()):
        return
    bound, why = 1.0, ""
    if evidence and many is not None:
        bound, lost = ranked(evidence.perfect, evidence, many), float((1 - evidence.values[many]).mean())
        why = f"{counted(int(many.sum()), 'query')} in conversations: they score {lost:.4f} below 1 on average."
    other = "user_turns" if own == "last" else "last"
    title = f"Search for {'the last turn' if other == 'last' else 'all user turns'}"
    yield Proposal("query", title, why, {"query.text": [other]}, bound, LAST_TURN)
    if setup.plan.llm.get("model") and own != "rewrite":
        title = "Let the language model rewrite conversations"
        yield Proposal("query", title, why, {"query.text": ["rewrite"]}, bound, REWRITTEN)


def gain(values: np.ndarray, evidence: RunEvidence) -> float:
    """Return the gain in the mean if the queries had these values."""
    return float(values.mean() - evidence.values.mean())


def ranked(values: np.ndarray, evidence: RunEvidence, rows: np.ndarray | None = None) -> float:
    """Return the gain in the mean if the lists shown had these values and the gate stayed the same.

    rows: bool [Q], the queries whose lists change; None for all. Queries that need no documents keep their values.
    """
    changed = evidence.needs if rows is None else evidence.needs & rows
    return gain(np.where(changed, evidence.kept * values, evidence.values), evidence)


def perfect_gate(evidence: RunEvidence) -> float:
    """Return the gain of a gate that is always right."""
    if evidence.shown is None:
        return 0.0
    changes = ~evidence.needs | (evidence.kept < 1)
    return gain(np.where(changes, np.maximum(evidence.shown[:, 0], evidence.shown[:, -1]), evidence.values), evidence)


def models(group: str) -> dict[str, str]:
    """Return, for each choice of the group that names a model, why the model cannot be used here; "" if it can."""
    installed, found = all(map(find_spec, PACKAGES)), {}
    for choice, path in manual.choice_files(group).items():
        node = yaml_files.load_yaml(path)
        if not isinstance(node, Mapping) or not (model := node.get("model")):
            continue
        if not installed:
            found[choice] = NOT_INSTALLED
        else:
            there = here(ModelSource(model, node.get("revision"), node.get("path")))
            found[choice] = "" if there else f"the model {model} is not on this machine"
    return found
