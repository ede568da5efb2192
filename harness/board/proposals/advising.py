"""What to try next after a run: the proposals that can run on this machine and are new, with cost and command line."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harness.board.proposals.catalogue import Proposal, Setup, gain, perfect_gate, proposals, ranked
from harness.board.proposals.command_line import CommandLine, plain_value
from harness.board.proposals.costs import CostModel, Workload
from harness.board.proposals.evidence import RunEvidence
from harness.config.check import checked
from harness.config.messages import explain
from harness.config.text import counted
from harness.errors import BadInput
from harness.gates.calibration import CLOSE
from harness.pipeline import preflight
from harness.pipeline.plan import Plan
from harness.storage.cache import Cache
from harness.tracking.retrieval_run import trial_key

LEAST = 0.001  # a proposal that usually adds less is not worth a line


@dataclass(frozen=True)
class Ceiling:
    """What a perfect part would add to the run's value, the others unchanged. of: the part, in words."""

    of: str
    bound: float


def ceilings(evidence: RunEvidence, elsewhere: np.ndarray | None) -> list[Ceiling]:
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
        name = f"the best run of the experiment for each query ({count} solved better by another)"
        found.append(Ceiling(name, gain(better, evidence)))
    return found


@dataclass(frozen=True, eq=False)
class Situation:
    """Where a run stands.

    setup: what the catalogue is made for. line: that repeats the run. facts, cache, costs: what its data are, where
    results are cached, and what computing takes. tried: the trial keys of all runs on these data.
    """

    setup: Setup
    line: CommandLine
    facts: preflight.DataFacts
    cache: Cache
    costs: CostModel
    tried: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class OpenTrial:
    """A configuration that a proposal stands for. values: those of the proposal's changes. line: that runs it."""

    values: tuple[str, ...]
    line: CommandLine
    plan: Plan
    key: str


def advise(situation: Situation, top: int) -> list[Proposal]:
    """At most `top` things to try, one of each kind, what usually adds most first; [] if nothing is worth it."""
    found: dict[str, Proposal] = {}
    for proposal, trials in open_proposals(situation, found):
        found[proposal.kind] = _composed(situation, proposal, trials)
        if len(found) == top:
            break
    return list(found.values())


def open_proposals(situation: Situation, kinds: Collection[str] = ()) -> Iterator[tuple[Proposal, list[OpenTrial]]]:
    """(a proposal, what it has to try), the greatest usual gain first. kinds: left out; they may grow meanwhile."""
    for proposal in proposals(situation.setup):
        if proposal.expected < LEAST:
            return
        if proposal.kind not in kinds and (trials := list(open_trials(situation, proposal))):
            yield proposal, trials


def _composed(situation: Situation, proposal: Proposal, trials: Sequence[OpenTrial]) -> Proposal:
    """The proposal with its cost and its command line."""
    tried = {key: dict.fromkeys(one.values[place] for one in trials) for place, key in enumerate(proposal.changes)}
    swept = {key: several for key, several in tried.items() if len(several) > 1}
    said = [word for word in trials[0].line.words if word.partition("=")[0] not in swept]
    return replace(
        proposal,
        cost=situation.costs.cost([Workload.of(one.plan, situation.facts) for one in trials]),
        verb="sweep" if swept else "run",
        words=(*said, *(f"{key}={','.join(several)}" for key, several in swept.items())),
    )


def open_trials(situation: Situation, proposal: Proposal) -> Iterator[OpenTrial]:
    """The configurations that a proposal stands for, without those that were tried or cannot run here."""
    line, facts = situation.line, situation.facts
    groups = {key: values for key, values in proposal.changes.items() if "." not in key}
    plain = {key: values for key, values in proposal.changes.items() if "." in key}
    for chosen in itertools.product(*groups.values()):
        try:
            composed = line.changed(dict(zip(groups, chosen, strict=True))).composed()
        except Exception as error:  # Hydra's, which has many
            if explain(error, "run", ()) is None and not isinstance(error, BadInput):
                raise
            continue
        for values in itertools.product(*plain.values()):
            given = dict(zip([*groups, *plain], [*chosen, *values], strict=True))
            try:
                plan = Plan.of(checked(_with(composed.config, dict(zip(plain, values, strict=True))), "run"))
                preflight.check(plan, facts, situation.cache)
                key = trial_key(plan, facts.fingerprints, facts.texts)
            except BadInput:
                continue
            if key not in situation.tried:
                yield OpenTrial(tuple(given[name] for name in proposal.changes), line.changed(given), plan, key)


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
