"""Turn the record of a logged run into a config that repeats it here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.config.check import check_config
from harness.config.command_list import config_class
from harness.config.commands import RepeatingConfig
from harness.config.components import target_class
from harness.config.schema import Node, Role, schema_defaults, with_role
from harness.errors import BadInput, did_you_mean
from harness.experiment.plan import Plan
from harness.recording import provenance, retrieval_run
from harness.tracking.tracker import LoggedRun

NO_TRACKING = {"_target_": "harness.tracking.tracker.Tracker"}


def require_repeatable(run: LoggedRun) -> None:
    """Raise BadInput unless the run has finished, and `harness run` or `harness score` has made its predictions."""
    command = run.tags.get("harness.verb", "")
    if command not in ("run", "score"):
        maker = f"`harness {command}`" if command else "a program other than the harness"
        raise BadInput(f"Run {run.short_id} was made by {maker} and has no predictions. Choose a run of `harness run`.")
    if kind := run.tags.get("task"):
        raise BadInput(
            f"Run {run.short_id} scored a file of task={kind}: there is nothing to run again. "
            f"`harness score task={kind} predictions=FILE references=FILE` scores it again; "
            "`harness export` checks that the predictions and references are unchanged."
        )
    if run.status != "FINISHED":
        raise BadInput(f"Run {run.short_id} is {run.status}: only finished runs can be reproduced.")


def repeating_config(
    run: LoggedRun, logged: Mapping[str, Any], config: RepeatingConfig, tracking: Node = NO_TRACKING
) -> dict[str, Any]:
    """Return the run's config for use here, with this command's outputs, cache and paths of data.

    logged: the config that the run logged. tracking: where the repeated run is logged. Raise BadInput if the config
    cannot be used here, or if a file that it names has changed.
    """
    version, commit = (run.tags.get(name, "unknown") for name in ("version.retrieval-harness", "git.commit"))
    try:
        if not isinstance(logged.get("retriever", {}), dict):
            raise BadInput("config.yaml of the run is damaged: `retriever` is not a group of keys.")
        command = run.tags["harness.verb"]
        cls = config_class(command)
        shipped = schema_defaults(cls)
        ours = {name: config.document.get(name, shipped.get(name)) for name in with_role(cls, Role.ASIDE)}
        ours |= {"experiment_name": run.experiment, "tracking": tracking, "format": shipped.get("format", "text")}
        if "cluster" in ours:  # Run on this machine. Keep the shard size: another one may change scores slightly.
            cluster = logged.get("cluster")
            shard = cluster.get("shard") if isinstance(cluster, dict) else None
            ours["cluster"] = {"_target_": "cluster/local", "shard": shard}
        merged = {name: value for name, value in logged.items() if name not in retrieval_run.ELSEWHERE} | ours
        check_config(merged, command)
        if command == "run":
            _require_same_files(run, Plan.of(merged))
        return {**merged, "dataset": _moved(merged["dataset"], config)}
    except BadInput as error:
        used = run.tags.get(provenance.PLUGINS)
        needs = f" The run used plug-ins, which must be installed here: {used}." if used else ""
        raise BadInput(
            f"The config of run {run.short_id} (version {version}, commit {commit[:12]}) cannot be used here: {error}"
            f"{needs}"
        ) from None


def _require_same_files(run: LoggedRun, plan: Plan) -> None:
    for tag, sha256 in provenance.sources(plan).items():
        if (then := run.tags.get(tag)) and then != sha256:
            kind, _, name = tag.partition(".")
            if kind == "source":
                cls: Any = target_class(plan.retriever[name], tag)
                place = plan.retriever[name][cls.source]
            else:
                key, _, rest = f"{name}.prompt".partition(".")
                chosen = plan.document[key][rest]
                place = f"{name}.prompt={chosen}" if chosen else f"The shipped prompt ({name}.prompt=null)"
            raise BadInput(
                f"{place} has changed since the run: its sha256 was {then[:12]}… and is {sha256[:12]}…. Put it back."
            )


def _moved(source: Mapping[str, Any], config: RepeatingConfig) -> dict[str, Any]:
    """Return the run's dataset config, with the paths that the key `data` gives and with this command's cache."""
    data, runtime = config.document["data"], source.get("runtime")
    new_paths = {name: path for name, path in data.items() if path is not None}
    known = [name for name in source if name in data]
    if unknown := [name for name in new_paths if name not in known]:
        raise BadInput(
            f"data.{unknown[0]}: {source['_target_']} has no such path.{did_you_mean(unknown[0], known)} "
            f"It has: {', '.join(known) or 'none'}."
        )
    kept = {"runtime": {**runtime, "store": config.store.path}} if runtime and "store" in runtime else {}
    return {**source, **new_paths, **kept}
