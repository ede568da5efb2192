"""A logged run as advice needs it: its command line, its lists from the cache, and what else has been tried."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from harness.board.advice import others
from harness.board.advice.advising import Situation
from harness.board.advice.costs import Costs
from harness.board.advice.evidence import Evidence, Lists
from harness.board.advice.ideas import ENCODERS, Ground
from harness.board.advice.others import Others
from harness.board.advice.words import Composed, Words, of_run
from harness.config import manual, yaml_files
from harness.config.components import identity
from harness.config.messages import explain
from harness.config.text import counted
from harness.data.dataset import Dataset
from harness.evaluation.losses import SHOWN
from harness.evaluation.score_table import read_table
from harness.pipeline import preflight, steps
from harness.pipeline.run_config import Node, RunConfig
from harness.pipeline.session import Session, cache_for, foreseen_queries
from harness.storage.cache import Cache, open_cache
from harness.testset import scripts
from harness.tracking import full_lists
from harness.tracking.logged_run import load_unchanged, logged_config, recommended
from harness.tracking.ranking import SCORED, Wanted, best, compares, require_labels
from harness.tracking.tracker import RETRIEVAL, LoggedRun, NoFile, Tracker
from retrievers.base import BadInput, Ranking
from retrievers.dense.models import INSTALL, PACKAGES, ModelSource, is_here

LETTERS = 200  # documents whose script is looked at
ELSEWHERE_MADE = "The run is a file that was made elsewhere: only its scores are known, and no command makes it again."
NOT_CACHED = "The run's rankings are not in the cache (store.path), so that its component rankings are unknown."
NO_LISTS = "It has logged no lists either, as no trial of a sweep does: bounds are those of its scores."


@dataclass(frozen=True, eq=False)
class Read:
    """A run to improve.

    others: the other finished runs that compare with it. notes: what is not known of it, and why.
    """

    run: LoggedRun
    situation: Situation
    others: Others
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Where:
    """Where runs and results are, and by what they are ranked. Values as of the keys of `harness advise`."""

    experiment: str
    run: str | None
    metric: str
    select_on: str | None
    cache: str
    config_dir: str | None = None


def read(tracker: Tracker, where: Where) -> Read:
    """The run that is named, or the best of the experiment. BadInput for a run that nothing can be said of."""
    run = _chosen(tracker, where)
    peers = [one for one in tracker.runs(run.experiment, {}, "FINISHED") if one.run_id != run.run_id]
    peers = [one for one in peers if one.tags.get("harness.verb") in SCORED and compares(one, run)]
    situation, notes = _situation(tracker, run, where)
    found = others.read(tracker, peers, situation.evidence)
    notes = [*notes, *found.notes, *_unchecked()]
    if situation.ground is None:
        return Read(run, situation, found, notes)
    ground = replace(
        situation.ground,
        varied=others.tried_values(run.params, (one.params for one in peers if one.has_settings)),
        beyond=others.edges(run.params, situation.evidence, found),
    )
    tried = frozenset(one.tags.get("trial_key", "") for one in (run, *peers))
    return Read(run, replace(situation, ground=ground, tried=tried), found, notes)


def _situation(tracker: Tracker, run: LoggedRun, where: Where) -> tuple[Situation, list[str]]:
    """(where a run stands, notes on what is not known of it)."""
    logged = logged_config(tracker, run)
    if run.tags["harness.verb"] == "score":
        labels = load_unchanged(run, logged["dataset"], ("qrels",))
        return Situation(_of_files(tracker, run, where, labels)), [ELSEWHERE_MADE]
    dataset = load_unchanged(run, logged["dataset"], ("documents", "queries", "qrels"))
    try:
        words = of_run(run.params, logged, where.config_dir)
        if where.metric != logged["objective"]:
            words = words.changed({"objective": where.metric})
        composed = words.composed()
    except Exception as error:  # Hydra's, which has many
        if (why := explain(error, "run", ())) is None:
            raise
        note = f"No command can be given that builds on this run: {why}"
        return Situation(_of_files(tracker, run, where, dataset)), [note]
    built = Built(composed, words, dataset, open_cache(where.cache))
    if built.cached:
        return built.situation(), []
    evidence = _of_files(tracker, run, where, dataset)
    return built.situation(evidence), [NOT_CACHED if evidence.lists else f"{NOT_CACHED} {NO_LISTS}"]


@dataclass(frozen=True, eq=False)
class Built:
    """A configuration on data, with what has been tried on them; all that advice needs, but for a tracker.

    composed, words: of the run. tried: trial keys. varied: as in `Ground`.
    """

    composed: Composed
    words: Words
    dataset: Dataset
    cache: Cache
    tried: frozenset[str] = frozenset()
    varied: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def config(self) -> RunConfig:
        return RunConfig.of(self.composed.config)

    @cached_property
    def facts(self) -> preflight.DataFacts:
        return preflight.DataFacts.of(self.dataset, *foreseen_queries(self.config, self.dataset))

    @cached_property
    def session(self) -> Session:
        return Session(self.dataset, self.facts.queries, self.cache, timed="never")

    @property
    def cached(self) -> bool:
        """Whether the run's queries, rankings and scored pairs are in the cache, so that it takes arithmetic alone."""
        if self.facts.unwritten or ("rerank" in self.config.active and not self._holds_pairs):
            return False
        return all(map(self._holds_ranking, self.config.retriever.values()))

    @property
    def _holds_pairs(self) -> bool:
        return self.cache.holds_pairs(identity(self.config.rerank))

    def _holds_ranking(self, node: Node) -> bool:
        ranking = steps.ranking_identity(steps.index_identity(node, self.dataset), self.session.queries_digest)
        return cache_for(node, self.cache).holds_ranking(ranking, self.config.depth)

    def situation(self, evidence: Evidence | None = None) -> Situation:
        """Where the run stands. evidence: None: its steps are computed again, from what is cached."""
        if evidence is None:
            outcome = steps.run(self.config, self.session)
            evidence = Evidence.of_outcome(self.config, outcome, self.dataset)
        ground = Ground(
            config=self.config,
            choices=self.composed.invocation.choices,
            evidence=evidence,
            script=script_of(self.dataset),
            documents=len(self.dataset.documents),
            encoders=(*ENCODERS, *_local("encoder")),
            rerankers=_local("rerank"),
            varied=self.varied,
        )
        costs = Costs(self.dataset, self.facts.queries_digest, self.cache, sum(self.session.clock.seconds.values()))
        return Situation(evidence, self.words, ground, self.facts, self.cache, costs, self.tried)


def _chosen(tracker: Tracker, where: Where) -> LoggedRun:
    if where.run is None:
        return best(tracker, Wanted(where.experiment, where.metric, where.select_on))
    run = recommended(tracker, tracker.run(where.run))
    if (task := run.tags.get("task", RETRIEVAL)) != RETRIEVAL:
        raise BadInput(f"Run {run.named} is of task={task}: advice is about retrieval.")
    if run.tags.get("harness.verb") not in ("run", "score"):
        raise BadInput(f"Run {run.named} is a record of `harness {run.tags.get('harness.verb')}`, without scores.")
    if run.status != "FINISHED":
        raise BadInput(f"Run {run.named} is {run.status}: advice needs a finished run.")
    require_labels(run)
    return run


def script_of(dataset: Dataset) -> str:
    """The script of most letters of the documents, from some of them."""
    step = max(1, len(dataset.documents) // LETTERS)
    return scripts.main(" ".join(document.indexed_text[:500] for document in dataset.documents[::step]))


def _local(group: str) -> tuple[str, ...]:
    """The choices of a group whose models are on this machine; none where they need a path or the hub."""
    return tuple(choice for choice, source in _models(group) if is_here(source))


def _models(group: str) -> Iterator[tuple[str, ModelSource]]:
    """The choices of a group that name a model."""
    for choice, path in manual.choices(group).items():
        node = yaml_files.load(path)
        if isinstance(node, Mapping) and node.get("model"):
            yield choice, ModelSource(node["model"], node.get("revision"), node.get("path"))


def _unchecked() -> list[str]:
    """A note on the models that nothing is proposed of, since the packages that load them are not installed."""
    if all(map(find_spec, PACKAGES)):
        return []
    names = [choice for group in ("encoder", "rerank") for choice, _ in _models(group)]
    return [f"Not checked: {names[0]} and {counted(len(names) - 1, 'other model')} ({INSTALL})."]


def _of_files(tracker: Tracker, run: LoggedRun, where: Where, dataset: Dataset) -> Evidence:
    """What the files of a run say: its scores by query, and its full lists if it has logged any."""
    assert dataset.qrels is not None
    with tempfile.TemporaryDirectory() as folder:
        table = read_table(tracker.download(run, "scores.csv", Path(folder)), where.metric)
        lists = None
        if dataset.queries:
            with contextlib.suppress(NoFile):  # a trial of a sweep has none
                [logged] = full_lists.named(tracker, [run.run_id], dataset, Path(folder))
                lists = Lists(_ranking(dataset, logged.lists), {})
    top_k = int(run.params.get("top_k", SHOWN))
    found = Evidence.of_table(table, where.metric, where.select_on or run.select_on, dataset.qrels, top_k)
    return replace(found, lists=lists)


def _ranking(dataset: Dataset, lists: Mapping[str, Sequence[str]]) -> Ranking:
    """Lists of documents, best first, as a ranking of all queries."""
    scores = {
        one.query_id: {doc: -float(rank) for rank, doc in enumerate(lists.get(one.query_id, ()))}
        for one in dataset.queries
    }
    return Ranking.from_scores(scores)
