"""Compare the snapshot of a run with the snapshot of a baseline, and say in a report whether retrieval got worse."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as Xml
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from harness.analysis.board.settings import changed_settings
from harness.analysis.comparison.comparison import p_in_words
from harness.analysis.guard.snapshot import SAVE, SHOWN, Snapshot, told_apart
from harness.config.text import counted, printable
from harness.data.attributes import Attributes, Slice, slices_by
from harness.data.files import some
from harness.errors import BadInput, did_you_mean
from harness.reports.markup import ABSENT, number, snippet
from harness.reports.report import Report
from harness.reports.result import report_text
from harness.reports.tables import Cell, Column, Number, Rows, Table
from harness.statistics.guard import MeasureChange, Outcome, judged_changes, worst
from harness.statistics.significance import FEW
from harness.storage.typed import HIDDEN
from harness.tracking.tracker import mlflow_name

BOUND = re.compile(r"\s*(?P<name>[^<>=\s]+)\s*(?P<sign><=?|>=?)\s*(?P<limit>[-+.\deE]+)\s*")
LISTED = 10  # number of queries that are listed
OUT_OF_FOLD = (
    "The values are out of fold where a run learned from the labels. The documents shown are from the logged lists, "
    "which may use the label of their query."
)
QUERY = 60  # maximum number of characters of a query in a table


@dataclass(frozen=True)
class Bound:
    """A limit for one number of the run, such as `ms_per_query<20`. sign: "<", "<=", ">" or ">="."""

    name: str
    sign: str
    limit: float
    value: float
    json_too = ("met",)

    @property
    def met(self) -> bool:
        below, equal = self.value < self.limit, self.value == self.limit
        return (below if "<" in self.sign else not below and not equal) or (equal and "=" in self.sign)

    @property
    def sentence(self) -> str:
        return f"{self.name} is {self.value:.6g}, but must be {self.sign} {self.limit:.6g}."


@dataclass(frozen=True)
class LostQuery:
    """A query that lost, with the documents that the baseline and the run returned, the best first.

    relevant: the ids of those that are relevant by today's labels.
    """

    query_id: str
    text: str
    before: float
    after: float
    docs_before: Sequence[str]
    docs_after: Sequence[str]
    relevant: Sequence[str]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CheckResult:
    """The answer of `harness check`.

    outcome: the worst outcome of all measures and bounds. margin, slice_margin: the drops to rule out, over
    all queries and in each slice; the latter is None if it is enough that no slice regressed.
    baseline, run: the names of both. queries: the number of queries that were compared.
    slices: the changes of the first measure in slices of the queries, see `SliceRule`.
    lost: the queries that lost most by the first measure. settings: name -> (in the baseline, in the run).
    """

    outcome: Outcome
    baseline: str
    run: str
    run_id: str | None
    margin: float
    slice_margin: float | None
    queries: int
    changes: Sequence[MeasureChange]
    slices: Sequence[MeasureChange]
    bounds: Sequence[Bound]
    lost: Sequence[LostQuery]
    settings: Mapping[str, Sequence[str | None]]
    notes: Sequence[str]
    report: Report = field(metadata=HIDDEN)

    def require(self) -> None:
        """Raise AssertionError with the whole report unless the outcome is "holds"."""
        if self.outcome != "holds":
            raise AssertionError(str(self))

    def __repr__(self) -> str:
        return report_text(self.report)

    def junit(self, undecided: str) -> str:
        """Return JUnit's XML, with a test for each measure, slice and bound. undecided: "fail", or "pass" to skip."""
        suite = Xml.Element("testsuite", name="harness check")
        cases = [(one.measure, one.outcome, sentence(one, self.margin)) for one in self.changes]
        for one in self.slices:
            outcome = one.outcome if self.slice_margin or one.outcome == "regressed" else "holds"
            cases.append((one.measure, outcome, sentence(one, self.slice_margin or self.margin)))
        cases += [(one.name, "holds" if one.met else "regressed", one.sentence) for one in self.bounds]
        for name, outcome, said in cases:
            case = Xml.SubElement(suite, "testcase", classname=printable(self.run), name=printable(name))
            if outcome != "holds":
                skips = outcome == "cannot tell" and undecided == "pass"
                Xml.SubElement(case, "skipped" if skips else "failure", message=printable(said), type=outcome)
        counts = {"tests": [*suite], "failures": suite.findall(".//failure"), "skipped": suite.findall(".//skipped")}
        suite.attrib |= {name: str(len(found)) for name, found in counts.items()}
        return Xml.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def check_snapshots(
    baseline: Snapshot,
    new: Snapshot,
    measures: Sequence[str],
    margin: float,
    bounds: Sequence[Bound] = (),
    known: Known | None = None,
    rule: SliceRule | None = None,
) -> CheckResult:
    """Compare a new run with a baseline. Raise BadInput if no query can be compared.

    bounds: see `bounds_of`. known: what is known of the queries, for slices and for the list of queries that lost.
    rule: None: no slices are compared.
    """
    known = known or Known({}, {}, {})
    query_ids, notes = shared_queries(baseline, new, known.renew)
    before, after = (one.values(query_ids, measures) for one in (baseline, new))
    equal = np.array_equal(before, after, equal_nan=True)  # measures of spans also depend on the texts
    same = equal and new.returns_same(baseline, query_ids)
    judged = judged_changes(measures, before, after, margin, same)
    own = rule.margin if rule else None
    slices = slices_by(rule.attributes, known.attributes, query_ids) if rule else []
    slices = [one for one in slices if not np.isnan((after - before)[0][one.inside]).all()]
    sliced = _sliced(measures[0], slices, (before[0], after[0]), own or margin, same)
    counts = [one.outcome for one in sliced if one.outcome == "regressed" or own]
    limits: list[Outcome] = ["holds" if one.met else "regressed" for one in bounds]
    outcome = worst([*(one.outcome for one in judged), *counts, *limits])
    lost = _lost(baseline, new, query_ids, after[0] - before[0], (before[0], after[0]), known)
    if not same:
        notes += [*known.notes, *([OUT_OF_FOLD] if baseline.out_of_fold or new.out_of_fold else [])]
    found = CheckResult(
        outcome=outcome,
        baseline=baseline.named,
        run=new.name,
        run_id=new.run_id,
        margin=margin,
        slice_margin=own,
        queries=len(query_ids),
        changes=judged,
        slices=sliced,
        bounds=bounds,
        lost=lost,
        settings=changed_settings([baseline.settings, new.settings]),
        notes=notes,
        report=Report(f"{outcome.capitalize()}: {new.named} against the baseline {baseline.named}", notes=notes),
    )
    return replace(
        found, report=replace(found.report, verdict=_verdict(found, same), tables=_tables(found, same, baseline))
    )


def _verdict(found: CheckResult, same: bool) -> list[str]:
    """Return the verdict in sentences. same: whether both runs returned the same documents."""
    said = [f"The run returned the same documents as the baseline for all {found.queries:,} queries."]
    if not same:
        own, slices = found.slice_margin, found.slices
        said = [sentence(one, found.margin) for one in found.changes]
        said += [sentence(one, own or found.margin) for one in slices if one.outcome == "regressed"]
        undecided = [one.measure.partition(" where ")[2] for one in slices if own and one.outcome == "cannot tell"]
        if undecided:
            said.append(f"Cannot tell in {len(undecided)} of {counted(len(slices), 'slice')}: {some(undecided)}.")
    return said + [f"Regressed: {one.sentence}" for one in found.bounds if not one.met]


def _tables(found: CheckResult, same: bool, baseline: Snapshot) -> list[Table]:
    settings: Rows = [[name, *(one or ABSENT for one in values)] for name, values in found.settings.items()]
    columns = [Column(""), Column("baseline"), Column("run")]
    return [
        *([_changes(found.changes, "measure")] if len(found.changes) > 1 and not same else []),
        *([_changes(found.slices, "slice")] if found.slices and not same else []),
        *([_bounds_table(found.bounds)] if found.bounds else []),
        *([_lost_table(found.lost, found.changes[0].measure, baseline)] if found.lost else []),
        *([Table("Settings that differ", columns, settings)] if settings else []),
    ]


def shared_queries(baseline: Snapshot, new: Snapshot, renew: str = SAVE) -> tuple[list[str], list[str]]:
    """Return (the queries that can be compared, notes about what has changed). Raise BadInput if there are none."""
    if baseline.version != new.version:
        raise BadInput(
            f"The baseline {baseline.named} was scored with version {baseline.version} of the measures, the run with "
            f"version {new.version}, which may give other values for the same documents. {renew}"
        )
    unlike = new.unlike(baseline)
    both = [query_id for query_id in new.queries if query_id in baseline.queries]
    if unlike and not all(one.queries[query_id].data for one in (baseline, new) for query_id in both):
        raise BadInput(
            f"The {' and '.join(unlike)} of the run differ from those of {baseline.named}. Only a baseline file says "
            f"which queries are still the same. {renew}"
        )
    kept = [one for one in both if not unlike or baseline.queries[one].data == new.queries[one].data]
    left = {
        "of the baseline {is} gone": [one for one in baseline.queries if one not in new.queries],
        "{is} new": [one for one in new.queries if one not in baseline.queries],
        "{has} another text or other labels": sorted({*both}.difference(kept)),
    }
    notes = [
        f"{counted(len(ids), 'query')} {said.format_map(_verbs(len(ids)))}: {some(ids)}. Not compared."
        for said, ids in left.items()
        if ids
    ]
    if not kept:
        raise BadInput(f"The run and the baseline {baseline.named} share no query. {' '.join(notes)} {renew}")
    if notes:
        notes.append(f"If these changes are meant, {renew.removeprefix('To ')}")
    if baseline.data.get("documents") != new.data.get("documents"):
        notes.insert(
            0, "The documents have changed since the baseline, so the scores may have changed for this reason."
        )
    return kept, notes


def _verbs(count: int) -> dict[str, str]:
    return {"is": "is", "has": "has"} if count == 1 else {"is": "are", "has": "have"}


def bounds_of(words: Sequence[str], numbers: Mapping[str, float]) -> list[Bound]:
    """Return the bounds that `words` name, such as `ms_per_query<20`. numbers: the run's numbers, by MLflow's names."""
    found = []
    for word in words:
        parts = BOUND.fullmatch(word)
        try:
            limit = float(parts["limit"]) if parts else math.nan
        except ValueError:
            limit = math.nan
        if parts is None or not math.isfinite(limit):
            raise BadInput(f"bounds: {word!r:.60} is not a bound. Write NAME<NUMBER or NAME>NUMBER: ms_per_query<20")
        name = parts["name"]
        if (value := numbers.get(mlflow_name(name))) is None:
            known = sorted(one.replace("_at_", "@") for one in numbers)
            plain = [one for one in known if "/" not in one]
            raise BadInput(
                f"bounds: the run has no number {name!r:.60}.{did_you_mean(name, known)} It has {some(plain, 40)}."
            )
        found.append(Bound(name, parts["sign"], limit, value))
    return found


def sentence(one: MeasureChange, margin: float) -> str:
    """Return what a change says, with its interval, and what these queries could have shown."""
    found, outcome = one.difference, one.outcome.capitalize()
    if not found.n:
        return f"{outcome}: {one.measure} applies to none of the queries."
    said = (
        f"{outcome}: {one.measure} went from {number(one.before)} to {number(one.after)}: {found.mean:+.3f} "
        f"(95 % {found.low:+.3f} to {found.high:+.3f}) on {counted(found.n, 'query')}"
    )
    few = found.wins + found.losses
    verb = "differs" if few == 1 else "differ"
    said += f", of which only {few} {verb}" if few and not math.isnan(found.low) and one.floor < found.low else ""
    shows = f" A true drop of {one.shows:.3f} would be found in 80 % of such checks." if one.shows else ""
    lower = " The run is worse, but by less than the margin." if found.high < 0 else ""
    if one.outcome == "holds":
        return f"{said}. A drop of {margin:g} is ruled out.{lower}{shows}"
    if one.outcome == "regressed":
        return f"{said}, {p_in_words(found.p_holm)}.{shows}"

    needed = f"about {one.needed:,} queries" if one.needed else "more than 10,000,000 queries"
    return f"{said}. A drop of {margin:g} is not ruled out; for that, {needed} are needed.{shows}"


@dataclass(frozen=True)
class Known:
    """What is known of the queries of today. grades: query_id -> {doc_id: grade} of relevant documents.

    notes: sentences about the labels. renew: how to make a baseline of today's data.
    """

    texts: Mapping[str, str]
    grades: Mapping[str, Mapping[str, float]]
    attributes: Attributes
    notes: Sequence[str] = ()
    renew: str = SAVE


@dataclass(frozen=True)
class SliceRule:
    """The attributes of queries whose slices may not regress.

    margin: the drop to rule out in each slice; None if it is enough that no slice has regressed.
    """

    attributes: Sequence[str]
    margin: float | None = None


def _sliced(
    measure: str, slices: Sequence[Slice], ends: Sequence[np.ndarray], margin: float, same: bool
) -> list[MeasureChange]:
    """Return the change of a measure in each slice. p is corrected over the slices.

    ends: the values before and after, float64 [N] each.
    """
    if not slices:
        return []
    rows = [np.array([np.where(one.inside, values, np.nan) for one in slices]) for values in ends]
    return judged_changes([f"{measure} where {one.name}" for one in slices], rows[0], rows[1], margin, same)


def _lost(
    baseline: Snapshot,
    new: Snapshot,
    query_ids: Sequence[str],
    gaps: np.ndarray,
    values: Sequence[np.ndarray],
    known: Known,
) -> list[LostQuery]:
    order = np.argsort(np.nan_to_num(gaps), kind="stable")[:LISTED]
    found = []
    for place in (int(one) for one in order if gaps[one] < 0):
        query_id = query_ids[place]
        old, now = baseline.queries[query_id].docs, new.queries[query_id].docs
        graded = known.grades.get(query_id, {})
        relevant = [doc for doc in old if any(baseline.means(doc, one) for one in graded)]
        relevant += [doc for doc in now if doc in graded]
        before, after = (float(one[place]) for one in values)
        found.append(LostQuery(query_id, known.texts.get(query_id, ""), before, after, old, now, sorted({*relevant})))
    return found


def _bounds_table(bounds: Sequence[Bound]) -> Table:
    columns = [Column("bound"), Column("value"), Column("outcome")]
    rows: Rows = [
        [f"{one.name} {one.sign} {one.limit:.6g}", f"{one.value:.6g}", "holds" if one.met else "regressed"]
        for one in bounds
    ]
    return Table("Bounds", columns, rows)


def _lost_table(lost: Sequence[LostQuery], measure: str, baseline: Snapshot) -> Table:
    ids = [doc for one in lost for doc in (*one.docs_after, *(() if baseline.cut else one.docs_before))]
    cut = max(told_apart(ids), baseline.cut)

    def said(one: LostQuery, docs: Sequence[str]) -> str:
        return ", ".join(f"{_whole('✓ ') if doc in one.relevant else ''}{doc[:cut]}" for doc in docs)

    rows: Rows = []
    for one in lost:
        returned = (said(one, docs) for docs in (one.docs_before, one.docs_after))
        rows.append([one.query_id, snippet(one.text, QUERY), one.before, one.after, *returned])
    columns = [Column("id"), Column("query"), Column("before", "value"), Column("after", "value")]
    columns += [Column("returned before"), Column("returned now")]
    note = f"Scores are {measure}; the first {SHOWN} documents are shown. ✓: relevant. Long ids are cut."
    return Table("Queries that lost most", columns, rows, [note]).without_empty()


def _changes(judged: Sequence[MeasureChange], noun: str) -> Table:
    columns = [Column(noun), Column("before", "value", on="paste"), Column("after", "value")]
    columns += [Column("difference", "difference"), Column("p (Holm)", "p", on="paste"), Column("queries", "count")]
    columns.append(Column("outcome"))
    rows: Rows = []
    for one in judged:
        found = one.difference
        name = one.measure.partition(" where ")[2] or one.measure
        cells: list[Cell] = [_whole(name), one.before, one.after, Number(found.mean, found.low, found.high)]
        rows.append([*cells, found.p_holm, found.n, _whole(one.outcome)])
    few = any(one.difference.wins + one.difference.losses < FEW for one in judged)
    said = [f"Where fewer than {FEW} queries differ, a wider bound than this interval decides."] if few else []
    return Table(f"{noun.capitalize()}s", columns, rows, said)


def _whole(text: str) -> str:
    """Return a text that no narrow terminal breaks."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")
