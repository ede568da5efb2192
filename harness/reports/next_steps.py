"""The commands to go on with after a command: they find the same runs, and run as they are printed."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.config import manual
from harness.config.check import Invocation, primary
from harness.config.defaults import defaults
from harness.gates.payoff import fixed_mean
from retrievers.base import BadInput

NEGLIGIBLE = 0.01  # a loss that is not worth another run
ONCE = ("run_name", "trace", "format", "answer", "answer.prompt", "metrics=all")  # of one run alone
LEARNT = ("auto", "depth", "classifier")  # gates that learn from labels
OWN = ("bm25", "hybrid_lexical", "hybrid_light", "dense", "hybrid", "bge_m3_sparse")  # those that sweep=auto tries
TRIED = ("retriever", "tokenizer", "encoder", "fusion", "rerank", "gate")  # groups that sweep=auto chooses from
BUDGET = "10m"  # of sweep=auto
MOST = 3  # commands that are proposed at once
RETRIEVAL = "retrieval"


@dataclass(frozen=True)
class Place:
    """Where the runs of a command are.

    config: of the command, resolved. choices: config group -> choice. config_dir: the folder of `--config-dir`.
    """

    config: Mapping[str, Any]
    choices: Mapping[str, str | None]
    config_dir: str | None = None

    @classmethod
    def of(cls, config: Mapping[str, Any], invocation: Invocation) -> Place:
        return cls(config, invocation.choices, invocation.config_dir)

    def command(self, verb: str, *words: str, metric: str | None = None) -> str:
        """`harness VERB` with these words and with what it needs to find the same, quoted for the shell.

        What `harness.yaml` or the command's own default says already is left out.

        metric: the measure that the command is to go by; None: the one that it takes by itself.
        """
        name, task = primary(verb), self.choices.get("task") or RETRIEVAL
        own = manual.manual(name)
        said = [f"task={task}"] if task != RETRIEVAL and "task" in own.groups else []
        known = {key: entry.value for key, entry in own.keys.items()}
        known |= {key: entry.value for key, entry in (manual.keys_of("task", task) if said else {}).items()}
        file = {one.key: one.text for one in defaults(name, [*flag(self.config_dir), *said]).settings}
        known |= file
        if metric not in (None, known.get("metric")):
            words = (f"metric={metric}", *words)
        given = {word.partition("=")[0] for word in words}
        for key, value in self._values(file).items():
            if own.has(key) and key not in given and value is not None and value != known.get(key):
                said.append(f"{key}={value}")
        return shlex.join(["harness", *verb.split(), *flag(self.config_dir), *said, *words])

    def _values(self, file: Mapping[str, str]) -> dict[str, str | None]:
        """Key -> value that decides where runs are; None where the command finds it by itself."""
        config = self.config
        uri = config["tracking"].get("uri")
        from_environment = "tracking.uri" not in file and uri == os.environ.get("MLFLOW_TRACKING_URI")
        cache = config.get("store", {}).get("path")
        usual = os.environ.get("HARNESS_CACHE") or f"{config['outputs']}/cache"
        return {
            "outputs": config["outputs"],
            "tracking.uri": None if from_environment or _has_password(uri) else uri,
            "experiment_name": config["experiment_name"],
            "store.path": None if "store.path" not in file and cache == usual else cache,
        }


def flag(config_dir: str | None) -> list[str]:
    """The words that name a `--config-dir` again."""
    return [f"--config-dir={config_dir}"] if config_dir else []


def _has_password(uri: str | None) -> bool:
    return bool(uri and urlsplit(uri).password)


@dataclass(frozen=True)
class Proposals:
    """What to try next, on the rungs of a ladder: each command builds on the one before it.

    invocation: of the run. retrievers: names of its component rankings. depth: documents retrieved for a query.
    documents: how many there are. objective: the measure that ranks. tokenizer: one that suits the language of the
    documents better than the run's; None if nothing speaks against the run's. bigrams: whether BM25 on character
    bigrams usually helps in that language.
    """

    invocation: Invocation
    retrievers: Sequence[str]
    depth: int
    documents: int
    objective: str
    tokenizer: str | None = None
    bigrams: bool = True

    def commands(self, needless: int, losses: Mapping[str, float] | None = None) -> Iterator[str]:
        """At most three commands, the best first, without what the run has already and what would win nothing back.

        needless: labelled queries that need no retrieval. losses: of modified_map@3, by kind; None: nothing is known.
        """
        yield from itertools.islice(self._steps(needless, losses), MOST)

    def _steps(self, needless: int, losses: Mapping[str, float] | None) -> Iterator[str]:
        def costs(*kinds: str) -> bool:
            return losses is None or any(losses.get(kind, 0.0) >= NEGLIGIBLE for kind in kinds)

        words = self._words()
        if self.tokenizer and (changed := self._with(words, "tokenizer", self.tokenizer)):
            words = changed
            yield self._line("run", words)
        if costs("not_found", "misranked") and (changed := self._mixed(words)):
            words = self._with_source(changed)
            yield self._line("run", words)
        gate = self._gate(needless) if costs("wrongly_returned", "wrongly_withheld") else None
        if gate and (changed := self._with(words, "gate", gate)):
            words = changed
            yield self._line("run", words)
        if self._automatic:
            tried = (word for word in self._words() if _group(word) not in TRIED)
            yield self._line("sweep", [*tried, "sweep=auto", f"budget={BUDGET}"])
        deeper = min(3 * self.depth, self.documents)
        worth = losses and costs("not_found") and deeper >= 2 * self.depth
        if worth and (changed := self._with(words, "depth", str(deeper))):
            yield self._line("run", changed)

    def _mixed(self, words: list[str]) -> list[str] | None:
        """With a mixture that adds what the retriever lacks and needs no further package; None where there is none."""
        own = self.invocation.choices.get("retriever")
        if own == "dense":
            return self._with(words, "retriever", "hybrid")
        if own not in ("bm25", "hybrid_lexical"):
            return None
        if self.bigrams:
            return self._with(words, "retriever", "hybrid_light")
        changed = self._with(words, "retriever", "hybrid")
        return changed and self._with(changed, "encoder", "lsa")

    def _gate(self, needless: int) -> str | None:
        """The gate to try; None where the run has it."""
        own = self.invocation.choices.get("gate")
        if not needless:
            return None if own == "none" else "none"
        return None if own in LEARNT else "auto"

    @property
    def _automatic(self) -> bool:
        """Whether an automatic sweep can go by the objective and chooses among retrievers of the run's kind."""
        given = (*self.invocation.defaults, *self.invocation.overrides)
        if any(word.startswith("experiment=") for word in given) or self.invocation.choices.get("retriever") not in OWN:
            return False
        try:
            fixed_mean(self.objective)
        except BadInput:
            return False
        return True

    def _with_source(self, words: list[str]) -> list[str]:
        """With the ranking that a gate by score has read so far: of several, it has to be named."""
        if self.invocation.choices["gate"] != "score" or any(word.startswith("gate.source=") for word in words):
            return words
        return [*words, f"gate.source={self.retrievers[0]}"]

    def _with(self, words: Sequence[str], key: str, value: str) -> list[str] | None:
        """The words with another value of a key; None where a recipe says that, too."""
        kept = [word for word in words if not _inside(word.partition("=")[0].lstrip("+~"), key)]
        given = (*kept, *self.invocation.defaults)
        recipe = next((word.partition("=")[2] for word in given if word.startswith("experiment=")), None)
        path = manual.choices("experiment", [Path(one) for one in [self.invocation.config_dir] if one]).get(
            recipe or ""
        )
        says = () if path is None else (*manual.read(path).keys, *manual.read(path).groups)
        if recipe and (path is None or any(_inside(one, key) for one in says)):
            return None
        return [*kept, f"{key}={value}"]

    def _line(self, verb: str, words: Sequence[str]) -> str:
        return shlex.join(["harness", verb, *flag(self.invocation.config_dir), *words])

    def _words(self) -> list[str]:
        words = list(self.invocation.overrides)
        return [word for word in words if word not in ONCE and word.partition("=")[0] not in ONCE]


def _group(word: str) -> str:
    return word.partition("=")[0].partition(".")[0].lstrip("+~")


def _inside(key: str, group: str) -> bool:
    return key == group or key.startswith(f"{group}.")
