"""What `run` and `init` print to go on with: the best proposals of the first kinds, each built on the one before it."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.board.proposals.catalogue import COMPONENTS, PLAIN, Proposal, Setup, proposals
from harness.board.proposals.command_line import key_of
from harness.config import manual
from harness.config.check import Invocation
from harness.config.commands import RunConfig
from harness.config.schema import Role, with_role
from harness.errors import BadInput
from harness.gates.payoff import fixed_mean
from harness.reports.next_steps import flag

NEGLIGIBLE = 0.01  # a loss that is not worth another run
ONCE = with_role(RunConfig, Role.ONCE)  # keys of one run alone
SWEPT = ("retriever", "tokenizer", "encoder", "fusion", "rerank", "gate")  # groups that sweep=auto chooses from
BUDGET = "10m"  # of sweep=auto
MOST = 3  # commands that are printed at once


@dataclass(frozen=True)
class Ladder:
    """The commands to go on with after a run. setup: of the run, without evidence. invocation: the run's."""

    setup: Setup
    invocation: Invocation

    def commands(self, losses: Mapping[str, float] | None = None) -> list[str]:
        """At most three commands, the best first, without what the run has already and what would win nothing back.

        losses: of modified_map@3, by kind; None: nothing is known.
        """
        return list(itertools.islice(self._rungs(losses), MOST))

    def _rungs(self, losses: Mapping[str, float] | None) -> Iterator[str]:
        def worth(*kinds: str) -> bool:
            return losses is None or any(losses.get(kind, 0.0) >= NEGLIGIBLE for kind in kinds)

        setup, words = self.setup, self._words()
        unfit = setup.writing.better_tokenizer(setup.plan.tokenizer_of(setup.choices))
        kinds = {
            "tokenizer": unfit is not None,
            "retriever": worth("not_found", "misranked"),
            "gate": worth("wrongly_returned", "wrongly_withheld"),
        }
        for kind in (kind for kind, wanted in kinds.items() if wanted):
            if changed := self._changed(words, kind):
                words = changed
                yield self._line("run", words)
        if self._automatic:
            kept = (word for word in self._words() if key_of(word).partition(".")[0] not in SWEPT)
            yield self._line("sweep", [*kept, "sweep=auto", f"budget={BUDGET}"])
        deeper = losses is not None and worth("not_found") and setup.documents >= 2 * setup.plan.depth
        if deeper and (changed := self._changed(words, "depth")):
            yield self._line("run", changed)

    def _changed(self, words: Sequence[str], kind: str) -> list[str] | None:
        """The words with the best proposal of a kind; None where there is none, or where a recipe contradicts it."""
        found = (one for one in proposals(self.setup) if one.kind == kind and (kind != "retriever" or self._adds(one)))
        if (best := next(found, None)) is None:
            return None
        changed = list(words)
        for key, [value, *_] in best.changes.items():
            if (with_it := self._with(changed, key, value)) is None:
                return None
            changed = with_it
        scored = kind == "retriever" and self.invocation.choices["gate"] == "score"
        if scored and not any(word.startswith("gate.source=") for word in changed):
            return [*changed, f"gate.source={next(iter(self.setup.plan.retriever))}"]  # that it has read so far
        return changed

    def _adds(self, one: Proposal) -> bool:
        """Whether a mixture adds what the retriever lacks, and more than hardly anything."""
        return one.share > PLAIN and bool(set(COMPONENTS[one.changes["retriever"][0]]) - self.setup.names)

    @property
    def _automatic(self) -> bool:
        """Whether an automatic sweep can go by the objective and chooses among retrievers of the run's kind."""
        given = (*self.invocation.defaults, *self.invocation.overrides)
        own = self.invocation.choices.get("retriever")
        if any(word.startswith("experiment=") for word in given) or own not in ("bm25", *COMPONENTS):
            return False
        try:
            fixed_mean(self.setup.plan.objective)
        except BadInput:
            return False
        return True

    def _with(self, words: Sequence[str], key: str, value: str) -> list[str] | None:
        """The words with another value of a key; None where a recipe sets the key, too."""
        if f"{key}={value}" in words:
            return list(words)
        kept = [word for word in words if not _inside(key_of(word), key)]
        given = (*kept, *self.invocation.defaults)
        recipe = next((word.partition("=")[2] for word in given if word.startswith("experiment=")), None)
        if recipe:
            folders = [Path(one) for one in [self.invocation.config_dir] if one]
            path = manual.choices("experiment", folders).get(recipe)
            says = () if path is None else (*manual.read(path).keys, *manual.read(path).groups)
            if path is None or any(_inside(one, key) for one in says):
                return None
        return [*kept, f"{key}={value}"]

    def _line(self, verb: str, words: Sequence[str]) -> str:
        return shlex.join(["harness", verb, *flag(self.invocation.config_dir), *words])

    def _words(self) -> list[str]:
        words = (word for word in self.invocation.overrides if word != "metrics=all")
        return [word for word in words if re.split("[.=]", word)[0] not in ONCE]


def _inside(key: str, group: str) -> bool:
    return key == group or key.startswith(f"{group}.")
