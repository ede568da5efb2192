"""The commands to go on with after a command: they find the same runs, and run as they are printed."""

from __future__ import annotations

import importlib.util
import os
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness.config import manual
from harness.config.check import Invocation, primary
from harness.config.defaults import defaults
from harness.config.hydra_app import typed

NEGLIGIBLE = 0.01  # a loss that is not worth another run
LOST = {
    "wrongly_returned": "documents returned where none are needed",
    "wrongly_withheld": "documents that the gate withheld wrongly",
    "not_found": "relevant documents that were not found",
    "misranked": "relevant documents ranked too low",
}
ONCE = ("run_name", "trace", "format", "answer", "answer.prompt")  # of one run alone
LEARNT = ("auto", "depth", "classifier")  # gates that learn from labels
TOKENIZERS = ("kiwi", "char_ngram", "word")  # worth trying
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
    """What to try after a retrieval run.

    invocation: of the run. retrievers: names of its component rankings. depth: documents retrieved for a query.
    documents: how many there are.
    """

    invocation: Invocation
    retrievers: Sequence[str]
    depth: int
    documents: int

    def lines(self, losses: Mapping[str, float], needless: int) -> Iterator[str]:
        """The two greatest losses, and the commands that may win them back; nothing where there is none.

        losses: of modified_map@3, by kind. needless: labelled queries that need no retrieval.
        """
        worst = sorted((kind for kind in losses if losses[kind] >= NEGLIGIBLE), key=lambda kind: -losses[kind])[:2]
        commands = [command for kind in worst for command in self._for(kind, needless)]
        if commands:
            named = [f"{LOST[kind]} ({losses[kind]:.4f})" for kind in worst]
            yield f"Most is lost to {', then to '.join(named)}. To try:"
            yield from (f"  {command}" for command in commands)

    def _for(self, kind: str, needless: int) -> Iterator[str]:
        choices = self.invocation.choices
        if kind == "misranked":
            yield from self._ranking()
        elif kind == "not_found":
            if any(name in ("bm25", "bigram") for name in self.retrievers):
                yield from self._with("sweep", "tokenizer", ",".join(_tokenizers(choices.get("tokenizer"))))
            if self.depth < self.documents:
                yield from self._with("run", "depth", str(min(3 * self.depth, self.documents)))
        elif not needless:
            yield from self._with("run", "gate", "none")
        elif choices["gate"] in LEARNT:
            yield from self._with("sweep", "gate", ",".join(("none", *LEARNT)))
        else:
            yield from self._with("run", "gate", "auto")

    def _ranking(self) -> Iterator[str]:
        first, *others = self.retrievers
        if self.invocation.choices.get("retriever") == "hybrid_lexical":
            yield from self._with("run", "retriever", "hybrid_light")
        if others and self.invocation.choices.get("fusion") not in ("learned", "fitted"):
            yield from self._with("sweep", f"fusion.weights.{first}", "0.3,0.5,1,2,3")
        elif not others:
            words = [word for word in self._words() if word.startswith("gate.source=")]
            source = [f"gate.source={first}"] if self.invocation.choices["gate"] == "score" and not words else []
            hybrid = {"bm25": "hybrid_lexical", "dense": "hybrid"}.get(first)
            yield from self._with("run", "retriever", hybrid, source) if hybrid else ()
        if self.invocation.choices["rerank"] == "none" and importlib.util.find_spec("sentence_transformers"):
            for command in self._with("run", "rerank", "cross_encoder"):
                yield f"{command}  # reads a model of 2 GB"

    def _with(self, verb: str, key: str, value: str, further: Collection[str] = ()) -> Iterator[str]:
        """The command line of the run with another value of a key; nothing where a recipe says that, too."""
        kept = [word for word in self._words() if not _inside(word.partition("=")[0].lstrip("+~"), key)]
        recipe = next((word.partition("=")[2] for word in kept if word.startswith("experiment=")), None)
        path = manual.choices("experiment", [Path(one) for one in [self.invocation.config_dir] if one]).get(
            recipe or ""
        )
        if recipe and (path is None or any(_inside(one, key) for one in manual.read(path).keys)):
            return
        folder = flag(self.invocation.config_dir)
        yield shlex.join(["harness", verb, *folder, *kept, *further, f"{key}={value}"])

    def _words(self) -> list[str]:
        words = [typed(word) for word in self.invocation.overrides]
        return [word for word in words if word.partition("=")[0] not in ONCE]


def _tokenizers(current: str | None) -> list[str]:
    """Those to try: the run's own first, so that it is among the trials, and no Korean one after one for English."""
    others = [name for name in TOKENIZERS if (name, current) != ("kiwi", "snowball")]
    return list(dict.fromkeys([current or others[0], *others]))


def _inside(key: str, group: str) -> bool:
    return key == group or key.startswith(f"{group}.")
