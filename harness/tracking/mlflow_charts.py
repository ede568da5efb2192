"""What leads to MLflow's pages: the address of an experiment's page, and the charts that a sweep's view opens with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SECTION = "sweep"  # the charts' section; those that MLflow makes of every metric follow below
SCATTERED = 6  # params with a chart of their own: MLflow limits the length of a saved view
RUNS = 100  # drawn in a chart


def experiment_page(experiment_id: str, view: str | None) -> str:
    """Path of an experiment's page: the one for runs and charts, not the one for agents."""
    shown = f"&viewStateShareKey={view}" if view else ""
    return f"#/experiments/{experiment_id}/runs?workflowType=machine_learning{shown}"


def charts(metric: str, params: Sequence[str]) -> dict[str, Any]:
    """Part of a saved view: parallel coordinates of all params, and the metric by each of them.

    metric, params: in MLflow's spelling.
    """
    parallel = _chart("parallel", "PARALLEL") | {"selectedParams": [*params], "selectedMetrics": [metric]}
    scattered = [
        _chart(f"by-{name}", "SCATTER")
        | {"xaxis": {"key": name, "type": "PARAM"}, "yaxis": {"key": metric, "type": "METRIC"}}
        for name in params[:SCATTERED]
    ]
    section = {"uuid": SECTION, "name": "Sweep", "display": True, "isReordered": False, "deleted": False}
    return {
        "isAccordionReordered": True,  # or MLflow sorts the sections by their names
        "compareRunSections": [section | {"isGenerated": False}],
        "compareRunCharts": [parallel | {"showAllRuns": True}, *scattered],
    }


def _chart(uuid: str, kind: str) -> dict[str, Any]:
    about = {"metricSectionId": SECTION, "deleted": False, "isGenerated": False, "runsCountToCompare": RUNS}
    return {"uuid": uuid, "type": kind} | about
