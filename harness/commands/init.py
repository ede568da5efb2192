"""`harness init`: write `harness.yaml`, the defaults of every command in the working folder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.analysis.proposals.catalogue import Setup
from harness.analysis.proposals.command_lines import NextCommands
from harness.analysis.ranking import GET_LABELS
from harness.config import defaults, yaml_files
from harness.config.canonical import flatten
from harness.config.check import Invocation
from harness.config.commands import InitConfig
from harness.data.files import some
from harness.data.scripts import Better, Writing
from harness.errors import BadInput
from harness.experiment.plan import Plan
from harness.experiment.session import open_dataset
from harness.reports.next_steps import flag, label_files
from harness.reports.report import Report
from harness.reports.result import CommandAnswer
from harness.storage.atomic import write_text

HEADER = """\
# Defaults of every harness command in this folder; the command line overrides them.
# Each line is `key: value`. `harness run --help` and the help of the other commands list the keys.
"""


def init(config: InitConfig, invocation: Invocation) -> CommandAnswer:
    """Write the given keys to `harness.yaml`, or add those that it lacks.

    Raise BadInput if `harness run` could not work with them, or if the file has other keys or values.
    """
    settings = _settings(config, invocation)
    rows, better, commands = _read_data(config, invocation) if config.task is None else ({}, None, ())
    if better and "tokenizer" not in settings:
        settings["tokenizer"] = better.name
        data = [f"{better.reason}, so tokenizer={better.name} was chosen."]
    else:
        data = [better.why] if better else []
    unlabelled = bool(rows) and not rows["labelled"]
    labels = _labels_beside(config, invocation) if unlabelled else []
    if unlabelled:
        where = f"{some(labels, 3)} may have them." if labels else GET_LABELS
        data.insert(0, f"No labels: nothing will be scored. {where}")
    path = Path(defaults.FILE)
    folders = [Path(invocation.config_dir)] if invocation.config_dir else []
    old = {one.key: one.value for one in defaults.read_defaults(path, folders)}
    added = "".join(f"{key}: {_yaml(value)}\n" for key, value in settings.items() if key not in old)
    before = yaml_files.text_of(path) if path.exists() else HEADER
    text = before + "\n" * (before[-1:] not in ("", "\n")) + added
    defaults.parse_defaults(text, path, folders)
    if any(key not in settings or settings[key] != value for key, value in old.items()):
        raise BadInput(_other_contents(path, old, settings))
    if added:
        write_text(path, text)
    counts = ", ".join(f"{count:,} {name}" for name, count in rows.items())
    lines = [
        f"Every command in this folder now takes its defaults from {path}{f' ({counts})' if counts else ''}:",
        *(f"  {key}: {_yaml(value)}" for key, value in settings.items()),
        *(f"Data: {one}" for one in data),
    ]
    verb, *words = ["run"] if config.task is None else ["score", "predictions=FILE", "references=FILE"]
    folder = flag(invocation.config_dir)
    again = ["harness", "init", *folder, *invocation.overrides]
    steps = [shlex.join([*again, f"dataset.qrels={one}"]) for one in labels]
    steps += [shlex.join(["harness", verb, *folder, *words]), *commands]
    document = {"file": str(path.absolute()), "defaults": settings, "rows": rows}
    return CommandAnswer(document, Report("", files=lines, steps=steps))


def _other_contents(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    values = {key: [_yaml(one[key]) if key in one else "(none)" for one in (old, new)] for key in {**old, **new}}
    lines = [f"\n  {key}: {before} → {after}" for key, (before, after) in values.items() if before != after]
    what = "exists and has other contents: edit it, or delete it and repeat this command."
    return f"{path} {what} The lines that differ:{''.join(lines)}"


def _labels_beside(config: InitConfig, invocation: Invocation) -> list[str]:
    """Return the files beside a contest's documents that may be its labels, if no labels are named."""
    node = config.document["dataset"]
    if invocation.choices["dataset"] != "contest" or node["qrels"]:
        return []
    return [*map(str, label_files(Path(node["path"] or Path(node["documents"]).parent)))]


def _settings(config: InitConfig, invocation: Invocation) -> dict[str, Any]:
    leaves = flatten(config.document)
    found: dict[str, Any] = {}
    for override in invocation.overrides:
        key = override.partition("=")[0]
        if "${" in override:
            raise BadInput(f"{override}: {defaults.FILE} cannot refer to other values. Write the value itself.")
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


def _read_data(config: InitConfig, invocation: Invocation) -> tuple[dict[str, int], Better | None, Sequence[str]]:
    """Return (counts of documents and queries, a tokenizer better than the config's or None, the next commands).

    Raise BadInput if a file is invalid, or if the gate needs labels that the data lack.
    """
    run_config = Plan.of(config.document)
    dataset = open_dataset(run_config, invocation.choices["dataset"])
    run_config.check(dataset.qrels)
    grades = dataset.qrels.grades if dataset.qrels else {}
    rows = {"documents": len(dataset.documents), "queries": len(dataset.queries), "labelled": len(grades)}
    writing = Writing.of(dataset.documents)
    better = writing.better_tokenizer(run_config.tokenizer_of(invocation.choices))
    asked = any(word.startswith("tokenizer=") for word in invocation.overrides)
    choices = {**invocation.choices, **({"tokenizer": better.name} if better and not asked else {})}
    needless = sum(not one for one in grades.values())
    setup = Setup(run_config, choices, writing, rows["documents"], needless)
    following = NextCommands(setup, replace(invocation, overrides=(), defaults=invocation.overrides))
    commands = following.commands() if grades else []
    return rows, better, commands


def _yaml(value: Any) -> str:
    import yaml

    text: str = yaml.safe_dump(value, allow_unicode=True, default_flow_style=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")
