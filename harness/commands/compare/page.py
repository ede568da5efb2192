"""What a comparison of retrieval runs tells people, in sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.reports.sections import Section, number, p_value, signed

DIFFERENCE = ["mean", "95 % interval", "p (Holm)", "win/tie/loss", "queries"]
DETAILS = ["p uncorrected", "p of t-test", "Cohen's d"]


def title(document: Mapping[str, Any]) -> str:
    return f"{len(document['runs'])} runs of {document['experiment']} on {document['queries']} queries"


def described(document: Mapping[str, Any], whole: bool) -> list[Section]:
    """whole: all pairs and measures; the short form has the pairs by the metric, and the rest of the first pair."""
    runs, metric = document["runs"], document["metric"]
    first, several = (runs[0]["label"], runs[1]["label"]), len(runs) > 2

    def wanted(name: str) -> list[Mapping[str, Any]]:
        return [one for one in document[name] if whole or (one["a"], one["b"]) == first]

    pairs = [one for one in document["differences"] if one["measure"] == metric]
    splits = [one for one in wanted("splits") if one["measure"] == metric]
    found = [_runs(document), Section("Verdict", [*document["verdicts"], *document["notes"]], figures=["shake_up"])]
    if several:
        found.append(_differences(document, f"Differences in {metric}", pairs, whole, ["differences"]))
    if whole or not several:
        pictures = [] if several else ["differences"]
        found.append(_differences(document, "Differences in all measures", wanted("differences"), whole, pictures))
    found.append((_splits if whole else _short_splits)(metric, splits))
    if any(run["losses"] for run in runs):
        found.append(_losses(runs))
    return [*found, *(_changed if whole else _short_changed)(metric, wanted("changed"))]


def _runs(document: Mapping[str, Any]) -> Section:
    metric = document["metric"]
    fitted = any(run["out_of_fold"] for run in document["runs"])
    header = ["", "id", metric, *(["as written"] if fitted else []), "run"]
    rows = []
    for run in document["runs"]:
        written = [number(run["as_written"][metric])] if fitted else []
        rows.append([run["label"], run["run_id"], number(run["metrics"][metric]), *written, run["name"]])
    return Section("Runs", (), header, rows)


def _differences(
    document: Mapping[str, Any], title: str, wanted: Sequence[Mapping[str, Any]], whole: bool, pictures: Sequence[str]
) -> Section:
    tests = {(one["a"], one["b"], one["measure"]): one for one in document["tests"]}
    rows: list[list[str]] = []
    notes: dict[str, list[str]] = {}
    for one in wanted:
        test = tests[one["a"], one["b"], one["measure"]]
        interval = "–" if one["low"] is None else f"{one['low']:+.3f} to {one['high']:+.3f}"
        counts = f"{one['wins']}/{one['ties']}/{one['losses']}"
        pair, measure = f"{one['a']} − {one['b']}", one["measure"]
        row = [signed(one["mean"]), interval, p_value(test["p_holm"]), counts, str(one["n"])]
        details = [pair, measure, p_value(test["p"]), "–" if test["p_t"] is None else p_value(test["p_t"])]
        details.append("–" if one["effect"] is None else f"{one['effect']:+.2f}")
        rows.append(
            [*details[:2], *row, *details[2:]] if whole else [measure if len(document["runs"]) == 2 else pair, *row]
        )
        if one["note"]:
            notes.setdefault(one["note"], []).append(f"{pair} {measure}")
    lines = [] if len({one["measure"] for one in wanted}) == 1 else ["Holm's correction is over pairs, not measures."]
    lines += [f"{', '.join(where[:5])}{' …' if len(where) > 5 else ''}: {note}." for note, where in notes.items()]
    header = ["pair", "measure", *DIFFERENCE, *DETAILS] if whole else ["", *DIFFERENCE]
    return Section(title, lines, header, rows, pictures)


def _splits(metric: str, wanted: Sequence[Mapping[str, Any]]) -> Section:
    parts = list(dict.fromkeys(one["part"] for one in wanted))
    pairs: dict[str, dict[str, str]] = {}
    for one in wanted:
        pairs.setdefault(f"{one['a']} − {one['b']}", {})[one["part"]] = f"{signed(one['mean'])} ({one['n']})"
    rows = [[pair, *(cells[part] for part in parts)] for pair, cells in pairs.items()]
    return Section(
        f"Differences in {metric} by kind of query", ["Mean difference (queries), not tested."], ["", *parts], rows
    )


def _short_splits(metric: str, wanted: Sequence[Mapping[str, Any]]) -> Section:
    said = [f"{one['part']} {signed(one['mean'])} ({one['n']})" for one in wanted]
    title = f"{wanted[0]['a']} − {wanted[0]['b']} in {metric} by kind of query (queries), not tested"
    return Section(title, [", ".join(said)])


def _losses(runs: Sequence[Mapping[str, Any]]) -> Section:
    kinds = list(dict.fromkeys(kind for run in runs for kind in run["losses"]))
    rows = [[run["label"], *(number(run["losses"].get(kind)) for kind in kinds)] for run in runs]
    return Section("Where the score is lost", ["Parts of 1 − modified_map@3."], ["", *kinds], rows, ["losses"])


def _changed(metric: str, changed: Sequence[Mapping[str, Any]]) -> list[Section]:
    """A section for each pair: its queries with both values and both runs' first documents."""
    pairs: dict[tuple[str, str], list[Sequence[str]]] = {}
    for one in changed:
        a, b = one["a"], one["b"]
        values = [number(one["values"][label]) for label in (a, b)]
        documents = [_listed(one["documents"][label]) for label in (a, b)]
        query = f"{one['query_id']}: {one['query']}" if one["query"] else one["query_id"]
        pairs.setdefault((a, b), []).append([query, *values, *documents])
    return [
        Section(
            f"Queries that differ most in {metric} between {a} and {b}",
            (),
            ["query", a, b, f"first documents of {a}", f"of {b}"],
            rows,
            ["queries"] if number == 0 else [],
        )
        for number, ((a, b), rows) in enumerate(pairs.items())
    ]


def _short_changed(metric: str, changed: Sequence[Mapping[str, Any]]) -> list[Section]:
    """One pair's queries as lines: of each list the first document's text, of the others the ids."""
    lines = []
    for one in changed:
        lines.append(f"{one['query_id']}: {one['query']}" if one["query"] else one["query_id"])
        for label, documents in one["documents"].items():
            first, *rest = documents or [{"doc_id": "nothing returned", "snippet": None}]
            then = f"; {', '.join(document['doc_id'] for document in rest)}" if rest else ""
            text = f" {first['snippet']}" if first["snippet"] else ""
            lines.append(f"  {label} {number(one['values'][label])}  {first['doc_id']}{text}{then}")
    if not changed:
        return []
    return [Section(f"Queries that differ most in {metric} between {changed[0]['a']} and {changed[0]['b']}", lines)]


def _listed(documents: Sequence[Mapping[str, Any]]) -> str:
    said = [f"{one['doc_id']} {one['snippet']}" if one["snippet"] else one["doc_id"] for one in documents]
    return "\n".join(f"{rank}. {one}" for rank, one in enumerate(said, start=1)) or "nothing returned"
