"""`harness init`: writes `harness.yaml`, the defaults of every command in the working folder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config import defaults
from harness.config.canonical import flatten
from harness.config.check import Invocation
from harness.data.files import write_text
from harness.pipeline import steps
from harness.pipeline.run_config import RunConfig
from harness.pipeline.session import load_dataset
from harness.reports import terminal
from harness.reports.next_steps import flag
from retrievers.base import BadInput

if TYPE_CHECKING:
    from rich.console import Console

HEADER = """\
# Defaults of every harness command in this folder; the command line has the last word.
# Each line is `key: value`, with the keys of `harness run --help` or of any other command.
"""


def init(config: dict[str, Any], invocation: Invocation) -> dict[str, Any]:
    """Write the given keys to `harness.yaml` once `harness run` could work with them.

    BadInput if the file is there with other contents.
    """
    settings = _settings(config, invocation)
    path = Path(defaults.FILE)
    text = HEADER + "".join(f"{key}: {_yaml(value)}\n" for key, value in settings.items())
    folders = [Path(folder) for folder in [invocation.config_dir] if folder]
    defaults.parse(text, path, folders)
    rows = _rows(config, invocation)
    if path.exists() and {one.key: one.value for one in defaults.read(path, folders)} != settings:
        raise BadInput(
            f"{path} is there already and says something else: edit it, or delete it and repeat this command."
        )
    if not path.exists():
        write_text(path, text)
    document = {"file": str(path.absolute()), "defaults": settings, "rows": rows}

    def show(console: Console) -> None:
        counts = ", ".join(f"{count:,} {name}" for name, count in rows.items())
        console.print(f"{path} is what every command in this folder starts from{f' ({counts})' if counts else ''}:")
        for key, value in settings.items():
            console.print(f"  {key}: {_yaml(value)}")
        console.print("Next:")
        if "task" in config:
            commands = [["score", "predictions=FILE", "references=FILE"]]
        else:
            commands = [["run"], ["sweep", "retriever=bm25,hybrid_lexical"] if rows["labelled"] else ["ui"]]
        for verb, *words in commands:
            console.print(f"  {shlex.join(['harness', verb, *flag(invocation.config_dir), *words])}")

    terminal.emit(config["format"], document, show)
    return document


def _settings(config: Mapping[str, Any], invocation: Invocation) -> dict[str, Any]:
    """Key -> choice or value, of what the command line gives. `format` is about this command's own output."""
    leaves = flatten(config)
    found: dict[str, Any] = {}
    for override in invocation.overrides:
        key = override.partition("=")[0]
        if "${" in override:
            raise BadInput(f"{override}: {defaults.FILE} takes plain values alone.")
        if key in invocation.choices:
            found[key] = invocation.choices[key]
        elif key in leaves:
            found[key] = leaves[key]
        else:
            raise BadInput(f"{override}: give each key on its own, as KEY=VALUE.")
    found.pop("format", None)
    if not found:
        raise BadInput(
            "Give the keys that all commands in this folder share, such as "
            "`harness init dataset=contest dataset.path=data experiment_name=first`."
        )
    return found


def _rows(config: dict[str, Any], invocation: Invocation) -> dict[str, int]:
    """How much there is of each kind of data. BadInput where a file is wrong, or the gate lacks labels."""
    if "task" in config:
        return {}
    run_config = RunConfig.of(config)
    dataset = load_dataset(run_config, invocation.choices["dataset"])
    steps.check(run_config, dataset.qrels)
    labelled = len(dataset.qrels.grades) if dataset.qrels else 0
    return {"documents": len(dataset.documents), "queries": len(dataset.queries), "labelled": labelled}


def _yaml(value: Any) -> str:
    """A value on one line of YAML."""
    import yaml

    text: str = yaml.safe_dump(value, allow_unicode=True, default_flow_style=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")
