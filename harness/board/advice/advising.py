"""What to try next after a run: of all ideas, those that this machine can try and nobody has tried, with their cost."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from harness.board.advice.costs import Cost, Costs
from harness.board.advice.evidence import Evidence
from harness.board.advice.ideas import Ground, Idea, expected, ideas, perfect_gate, ranked
from harness.board.advice.words import Words, plain_value
from harness.config.check import checked
from harness.config.messages import explain
from harness.config.text import counted
from harness.gates.calibration import CLOSE
from harness.pipeline import preflight
from harness.pipeline.run_config import RunConfig
from harness.storage.cache import Cache
from harness.tracking.retrieval_run import trial_key
from retrievers.base import BadInput

LEAST = 0.001  # an expected gain below it is not worth a line


@dataclass(frozen=True)
class Advice:
    """One thing to try.

    bound: the most that it can add to the objective on these queries. expected: what such a change usually adds, by
    which advice is ordered. exact: whether the bound is what it does add on these queries. words: of its command line
    after `harness VERB`, without those that say where runs are.
    """

    kind: str
    title: str
    why: str
    bound: float
    expected: float
    exact: bool
    cost: Cost
    verb: str
    words: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"words": list(self.words)}


@dataclass(frozen=True)
class Ceiling:
    """What a perfect part would add to the run's value, the others unchanged. of: the part, in words."""

    of: str
    bound: float


def ceilings(evidence: Evidence, elsewhere: np.ndarray | None) -> list[Ceiling]:
    """What each perfect part would add, in the order of the pipeline.

    elsewhere: float64 [Q], the best value of each query in the other runs of the experiment; None where there are none.
    """
    found = [Ceiling("a ranking with all relevant documents first", ranked(evidence.perfect, evidence))]
    if evidence.lists is not None:
        if len(evidence.lists.rankings) > 1:
            pooled = "the documents of all component rankings in the best order"
            found.append(Ceiling(pooled, ranked(evidence.pooled, evidence)))
        best = ranked(evidence.reordered(), evidence)
        found.append(Ceiling("the documents that were found in the best order", best))
        found.append(Ceiling("a gate that is always right", perfect_gate(evidence)))
    if elsewhere is not None:
        better = np.fmax(evidence.values, elsewhere)
        count = counted(int((better > evidence.values + CLOSE).sum()), "query")
        found.append(Ceiling(f"the best run of the experiment for each query ({count} solved better by another)",
                             float(better.mean()) - evidence.value))  # fmt: skip
    return found


@dataclass(frozen=True, eq=False)
class Situation:
    """Where a run stands.

    words: that repeat it; None where no command line does. ground: what is known of it; None where only its values are.
    facts, cache: what its data are, and where results are cached. tried: the trial keys of all runs on these data.
    """

    evidence: Evidence
    words: Words | None = None
    ground: Ground | None = None
    facts: preflight.DataFacts | None = None
    cache: Cache | None = None
    costs: Costs | None = None
    tried: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class Trial:
    """A configuration that an idea stands for. values: those of the idea's changes. words: its command line."""

    values: tuple[str, ...]
    words: Words
    config: RunConfig
    key: str


def advise(situation: Situation, top: int) -> list[Advice]:
    """At most `top` things to try, one of each kind, what is likely to bring most first; [] if nothing is worth it."""
    found: dict[str, Advice] = {}
    for idea, trials in proposed(situation, found):
        found[idea.kind] = _advice(situation, idea, trials)
        if len(found) == top:
            break
    return list(found.values())


def proposed(situation: Situation, kinds: Collection[str] = ()) -> Iterator[tuple[Idea, list[Trial]]]:
    """(an idea, what it has to try), the likeliest gain first. kinds: which are left out; it may grow meanwhile."""
    if situation.ground is None:
        return
    for idea in ideas(situation.ground):
        if expected(idea, situation.ground) < LEAST:
            return
        if idea.kind not in kinds and (trials := list(open_trials(situation, idea))):
            yield idea, trials


def _advice(situation: Situation, idea: Idea, trials: Sequence[Trial]) -> Advice:
    assert situation.ground is not None
    assert situation.costs is not None
    values = {key: list(dict.fromkeys(one.values[place] for one in trials)) for place, key in enumerate(idea.changes)}
    swept = {key: several for key, several in values.items() if len(several) > 1}
    said = [word for word in trials[0].words.texts if word.partition("=")[0] not in swept]
    return Advice(
        kind=idea.kind,
        title=idea.title,
        why=idea.why,
        bound=idea.bound,
        expected=expected(idea, situation.ground),
        exact=idea.exact,
        cost=situation.costs.of([one.config for one in trials]),
        verb="sweep" if swept else "run",
        words=(*said, *(f"{key}={','.join(several)}" for key, several in swept.items())),
    )


def open_trials(situation: Situation, idea: Idea) -> Iterator[Trial]:
    """The configurations that an idea stands for, without those that were tried or cannot run here."""
    assert situation.words is not None
    assert situation.facts is not None
    assert situation.cache is not None
    groups = {key: values for key, values in idea.changes.items() if "." not in key}
    plain = {key: values for key, values in idea.changes.items() if "." in key}
    for chosen in itertools.product(*groups.values()):
        try:
            composed = situation.words.changed(dict(zip(groups, chosen, strict=True))).composed()
        except Exception as error:  # Hydra's, which has many
            if explain(error, "run", ()) is None and not isinstance(error, BadInput):
                raise
            continue
        for values in itertools.product(*plain.values()):
            given = dict(zip([*groups, *plain], [*chosen, *values], strict=True))
            try:
                config = RunConfig.of(checked(_with(composed.config, dict(zip(plain, values, strict=True))), "run"))
                preflight.check(config, situation.facts, situation.cache)
                key = trial_key(config, situation.facts.fingerprints, situation.facts.texts)
            except BadInput:
                continue
            if key not in situation.tried:
                yield Trial(tuple(given[name] for name in idea.changes), situation.words.changed(given), config, key)


def _with(config: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    """A config with other plain values, numbers where they look like numbers."""
    made: dict[str, Any] = copy.deepcopy(dict(config))
    for key, text in values.items():
        *groups, name = key.split(".")
        node = made
        for group in groups:
            node = node.setdefault(group, {})
        node[name] = plain_value(text)
    return made
