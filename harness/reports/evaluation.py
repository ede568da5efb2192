"""The scores of a run: for Python and notebooks, and for the pages and descriptions of runs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from harness.measures.measures import MERGED, OOF
from harness.measures.objective import Objective
from harness.measures.score_table import FLAGS, LOSS, table_columns
from harness.measures.scores import UNANSWERABLE, Scores, Summary
from harness.reports import report, terminal
from harness.reports.markup import number
from harness.reports.report import Report
from harness.reports.tables import Column, Rows, Table
from harness.statistics.prediction_powered import Estimate
from harness.storage.typed import encoded

if TYPE_CHECKING:
    from pandas import DataFrame

WIDTH = 100  # characters of a line
# `headline` puts the objective first, then these measures, then the share of judged documents, such as `judged@3`.
FIRST = ("modified_map@3", "hit@3", "mrr@3", "ndcg@10", "recall@100", "abstention_precision", "abstention_recall")
LOSSES = {
    "wrongly_returned": "needs no retrieval, yet documents were shown",
    "wrongly_withheld": "needs retrieval, yet the gate withheld the documents",
    "not_found": "no relevant document among those retrieved",
    "misranked": "found, but not at the top of the documents shown",
    MERGED: "not found, or not at the top of the documents shown; the lists are too short to tell which",
}


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The scores of ranked lists. Without labels, all mappings and tables are empty.

    scores: the scores of the lists that the run wrote; None without labels.
    held_out: the out-of-fold scores if a gate or a fusion learned from labels; otherwise None.
    objective: the value that ranks the run; None if the measure has no value.
    """

    scores: Scores | None
    held_out: Scores | None
    objective: Objective | None

    @property
    def metrics(self) -> dict[str, float | None]:
        """Measure -> mean over the queries that the measure applies to; None without a value. `absent` says why."""
        return _means(self.scores)

    @property
    def out_of_fold(self) -> dict[str, float | None]:
        """Like `metrics`, but a query is scored with rules learned without its own label; {} if nothing was learned."""
        return _means(self.held_out)

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Measure -> 95 % interval of its mean. Measures without an interval are left out."""
        summary = self.scores.summary if self.scores else {}
        return {name: (one.low, one.high) for name, one in summary.items() if one.low == one.low}

    @property
    def estimates(self) -> dict[str, Estimate]:
        """Measure -> estimate of its mean (out of fold if anything was learned); {} unless a model made some labels."""
        scores = self.held_out or self.scores
        return dict(scores.estimates) if scores else {}

    @property
    def absent(self) -> dict[str, str]:
        """Measure -> the reason why it has no value or no interval."""
        return {name: one.note for name, one in (self.scores.summary if self.scores else {}).items() if one.note}

    @property
    def losses(self) -> dict[str, float]:
        """Kind of loss -> mean loss. The losses add up to 1 - modified_map@3."""
        return dict(self.scores.losses) if self.scores else {}

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of queries that are predicted, labelled, scored, missing, and so on."""
        return dict(self.scores.counts) if self.scores else {}

    def headline(self, count: int) -> list[tuple[str, Summary, Estimate | None]]:
        """Return (logged name, summary, estimate) of `count` measures, the objective first.

        If there are unanswerable queries, a last entry is about them. The out-of-fold value of a measure comes before
        its in-sample value. Without labels by a model, the estimate is None.
        """
        if not self.scores:
            return []
        names = self.scores.summary
        judged = [name for name in names if name.startswith("judged@")]
        order = dict.fromkeys([*([self.objective.name] if self.objective else []), *FIRST, *judged, *names])
        rows: list[tuple[str, Summary, Estimate | None]] = []
        for name in [name for name in order if name in names and names[name].n][:count]:
            if self.held_out and name in self.held_out.summary:
                rows.append((f"{OOF}{name}", self.held_out.summary[name], self.held_out.estimate(name)))
            rows.append((name, names[name], self.scores.estimate(name)))
        apart = self.scores.unanswerable
        return [*rows, (UNANSWERABLE, apart, self.scores.estimate(UNANSWERABLE))] if apart else rows

    @cached_property
    def per_query(self) -> DataFrame:
        """A table with one row per scored query, as in `scores.csv`. It needs pandas."""
        import pandas

        if not self.scores:
            return pandas.DataFrame(columns=["query_id", *FLAGS]).set_index("query_id")
        columns = table_columns(self.scores, self.held_out)
        table = pandas.DataFrame({name: [*cells] for name, cells in columns.items()}).set_index("query_id")
        measured = table.columns.difference([*FLAGS, LOSS], sort=False)
        return table.astype(dict.fromkeys(FLAGS, bool) | dict.fromkeys(measured, float))

    def __repr__(self) -> str:
        values = ", ".join(f"{name} {number(value)}" for name, value in self.metrics.items())
        return "\n".join([*self._lines(), *textwrap.wrap(values, WIDTH)])

    def _repr_html_(self) -> str:
        first, *others = self._lines()
        return report.report_html(Report(first, others, [*self._tables()]))

    def _lines(self) -> Iterator[str]:
        if self.objective:
            yield terminal.ranked_by(self.objective, self.held_out or self.scores)
        if self.scores:
            yield terminal.counted_queries(self.scores)
        else:
            yield "No labels: nothing is scored."

    def _tables(self) -> Iterator[Table]:
        if not self.scores:
            return
        yield replace(terminal.score_table(self.scores, self.held_out), notes=terminal.notes_of(self.scores))
        if lost := shown_losses(self):
            columns = [Column("part"), Column("loss", "value"), Column("meaning")]
            kind = ", out of fold" if self.held_out else ""
            rows: Rows = [[name, value, LOSSES[name]] for name, value in lost.items()]
            yield Table(f"Parts of 1 − modified_map@3{kind}", columns, rows)


def _means(scores: Scores | None) -> dict[str, float | None]:
    return {name: encoded(summary.known) for name, summary in scores.summary.items()} if scores else {}


def shown_losses(of: Evaluation) -> dict[str, float]:
    """Return the losses, out of fold if known; {} if the losses do not add up to 1 - objective."""
    scores = of.held_out or of.scores
    return scores.losses if scores and terminal.loses(of.objective) else {}
