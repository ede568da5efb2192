"""Commands to run next, ready to be copied. Each one finds the same runs as the command that suggests it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from harness.config import manual
from harness.config.check import Invocation, primary
from harness.config.defaults import command_defaults
from harness.config.schema import Config
from harness.experiment.plan import Plan

RETRIEVAL = "retrieval"


@dataclass(frozen=True)
class Place:
    """Where a command's runs are. config: the command's resolved config. choices: config group -> config name."""

    config: Mapping[str, Any]
    choices: Mapping[str, str | None]
    config_dir: str | None = None

    @classmethod
    def of(cls, config: Config | Plan, invocation: Invocation) -> Place:
        return cls(config.document, invocation.choices, invocation.config_dir)

    def command(self, verb: str, *words: str, metric: str | None = None) -> str:
        """Return `harness VERB`, these words, and words by which it finds the same runs, all quoted for the shell.

        Words that repeat a default, such as a setting in `harness.yaml`, are left out. metric: None for the default.
        """
        name, task = primary(verb), self.choices.get("task") or RETRIEVAL
        own = manual.manual(name)
        said = [f"task={task}"] if task != RETRIEVAL and "task" in own.groups else []
        known = {key: entry.value for key, entry in own.keys.items()}
        known |= {key: entry.value for key, entry in (manual.manual_keys("task", task) if said else {}).items()}
        file = {one.key: one.text for one in command_defaults(name, [*flag(self.config_dir), *said]).settings}
        known |= file
        if metric not in (None, known.get("metric")):
            words = (f"metric={metric}", *words)
        given = {word.partition("=")[0] for word in words}
        for key, value in self._values(file).items():
            if own.has(key) and key not in given and value is not None and value != known.get(key):
                said.append(f"{key}={value}")
        return shlex.join(["harness", *verb.split(), *flag(self.config_dir), *said, *words])

    def _values(self, file: Mapping[str, str]) -> dict[str, str | None]:
        """Return key -> value for the keys that say where runs are; None if the command finds the value itself."""
        config = self.config
        uri = config["tracking"].get("uri")
        from_environment = "tracking.uri" not in file and uri == os.environ.get("MLFLOW_TRACKING_URI")
        cache = config.get("store", {}).get("path")
        usual = os.environ.get("HARNESS_CACHE") or f"{config['outputs']}/cache"
        return {
            "outputs": config["outputs"],
            "tracking.uri": None if from_environment or (uri and urlsplit(uri).password) else uri,
            "experiment_name": config["experiment_name"],
            "store.path": None if "store.path" not in file and cache == usual else cache,
        }


def flag(config_dir: str | None) -> list[str]:
    """Return [`--config-dir=FOLDER`]; [] without a folder."""
    return [f"--config-dir={config_dir}"] if config_dir else []
