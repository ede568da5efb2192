"""The score of the procedure on queries that it has not seen: nested cross-validation.

The queries are split into folds. Without the labels of one fold, the whole procedure is carried out again: what gates
learn, which configurations are tried, and which of them is the best. The one that it chooses scores the queries of the
fold. Component rankings depend on no label, so that all of this is arithmetic.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from harness.commands.sweep.auto.ascent import Menu, Words, ascend
from harness.data.files import json_file
from harness.evaluation.bootstrap import bootstrap_means
from harness.evaluation.scores import plain
from harness.evaluation.significance import sign_flip_test
from harness.gates.calibration import folds
from harness.storage.atomic import write_text
from retrievers.base import BadInput, Progress

FOLDS = 10
REPEATS = 3  # at most: as many as the budget allows
LEAST = 20  # labelled queries; with fewer, no interval and no test means anything
RESAMPLES = 10_000
_SPLITS = 500  # gates draw their own folds by lower numbers


class Values(Protocol):
    """Gives the value of a configuration for each query; see `Bench.values`."""

    def values(self, words: Words, known: np.ndarray) -> np.ndarray: ...


@dataclass(frozen=True)
class Replay:
    """The procedure carried out without each fold, once.

    values: of the n queries, each of the configuration that was chosen without its fold. chosen: one for each fold.
    """

    values: tuple[float, ...]
    chosen: tuple[Words, ...]

    def write(self, file: Path, of: str) -> None:
        """of: digest of what it was made of."""
        write_text(file, json.dumps({"of": of, "values": self.values, "chosen": self.chosen}))

    @classmethod
    def read(cls, file: Path, of: str) -> Replay | None:
        """The replay that `write` wrote; None if the file has another one, or is missing or damaged."""
        try:
            content = json_file(file)
        except BadInput:
            return None
        match content:
            case {"of": str() as made_of, "values": [*values], "chosen": [*chosen]} if made_of == of:
                numbers = all(isinstance(one, float | int) and math.isfinite(one) for one in values)
                lists = all(isinstance(one, list) and all(isinstance(word, str) for word in one) for one in chosen)
                if numbers and lists and values and chosen:
                    return cls(tuple(values), tuple(map(tuple, chosen)))
        return None


@dataclass(frozen=True)
class Procedure:
    """How the procedure does on queries whose labels it has not seen, beside the baseline.

    value, low, high: the mean over the queries with its 95 % interval, NaN where there is none.
    folds, repeats: of the cross-validation; each query has the mean of its values in all repeats.
    winner: the value of the configuration that was chosen with all labels, by which it was chosen.
    baseline: the value of the first configuration, on the same queries; `baseline_words`: what it is.
    difference, difference_low, difference_high, p: procedure - baseline, its interval, and a paired randomisation test.
    agreement: the share of the folds that chose the winner.
    notes: what limits these numbers.
    """

    objective: str
    value: float
    low: float
    high: float
    kind: str
    folds: int
    repeats: int
    queries: int
    winner: float
    baseline: float
    baseline_words: str
    difference: float
    difference_low: float
    difference_high: float
    p: float
    agreement: float
    notes: tuple[str, ...] = ()

    def sentence(self) -> str:
        """What the numbers mean, for people."""
        interval = "" if math.isnan(self.low) else f" ({self.low:.3f} to {self.high:.3f})"
        than = "better" if self.difference >= 0 else "worse"
        apart = f"{abs(self.difference):.4f} {than} than {self.baseline_words} ({self.baseline:.4f})"
        if not math.isnan(self.p):
            apart += f", 95 % interval {self.difference_low:+.3f} to {self.difference_high:+.3f}, p = {self.p:.2g}"
        return (
            f"On queries that it has not seen, this procedure scores {self.objective} {self.value:.4f}{interval}: "
            f"{apart}."
        )

    def to_json(self) -> dict[str, Any]:
        """NaN becomes None."""
        found: dict[str, Any] = plain(asdict(self))
        return found | {"notes": list(self.notes), "sentence": self.sentence()}

    def metrics(self) -> dict[str, float]:
        """For the parent run."""
        names = ("value", "low", "high", "baseline", "difference", "p", "agreement")
        found = {f"procedure/{name}": float(getattr(self, name)) for name in names}
        return {name: value for name, value in found.items() if not math.isnan(value)}


def replay(
    menu: Menu,
    bench: Values,
    rows: np.ndarray,
    needs: np.ndarray,
    seed: int,
    number: int,
    progress: Progress | None = None,
) -> Replay:
    """Carry the procedure out without each fold of the queries.

    rows: int [n], the queries that choose, n >= 2. needs: bool [Q], whether a query needs retrieval, by which folds
    are drawn. number: of the repeat, from 0; each has other folds.
    """
    fold = folds(needs[rows], min(FOLDS, len(rows)), 1000 * seed + _SPLITS + number)
    values, chosen = np.full(len(rows), np.nan), []
    for one in range(fold.max() + 1):
        known, own = rows[fold != one], fold == one
        words = choose(menu, partial(_mean, bench, known))
        values[own] = bench.values(words, known)[rows[own]]
        chosen.append(words)
        if progress:
            progress(len(chosen), int(fold.max()) + 1, "folds")
    return Replay(tuple(values.tolist()), tuple(chosen))


def _mean(bench: Values, known: np.ndarray, words: Words) -> float:
    return float(bench.values(words, known)[known].mean())


def choose(menu: Menu, value: Callable[[Words], float]) -> Words:
    """What the procedure chooses where configurations have these values."""
    steps = ascend(menu)
    asked = next(steps)
    while True:
        try:
            asked = steps.send({words: value(words) for words in asked})
        except StopIteration as over:
            return over.value


def judged(
    objective: str,
    select_on: str,
    replays: Sequence[Replay],
    winner: tuple[Words, float],
    baseline: tuple[Words, np.ndarray],
    seed: int,
    raw: bool,
) -> Procedure:
    """The numbers of some replays. winner: the configuration and its value. baseline: the same, by query [n].

    raw: whether labels come partly from a model, so that raw means have no interval and no test.
    """
    values = np.mean([one.values for one in replays], axis=0)
    rows = np.stack([values, values - baseline[1]])
    n = len(values)
    (low, gap_low), (high, gap_high) = bootstrap_means(rows, seed)[:2]
    p = float(sign_flip_test(rows[1:], seed, RESAMPLES)[0][0])
    notes = []
    if n < LEAST:
        notes.append(f"Only {n} labelled queries choose: no interval and no test means much with fewer than {LEAST}.")
    if raw:
        notes.append("Labels come partly from a model: values are raw means, without interval and test.")
    if n < LEAST or raw:
        low = high = gap_low = gap_high = p = math.nan
    counts = Counter(words for one in replays for words in one.chosen)
    return Procedure(
        objective=objective,
        value=float(values.mean()),
        low=float(low),
        high=float(high),
        kind="public, out of fold" if select_on == "public" else "out of fold",
        folds=len(replays[0].chosen),
        repeats=len(replays),
        queries=n,
        winner=winner[1],
        baseline=float(baseline[1].mean()),
        baseline_words=" ".join(baseline[0]),
        difference=float(rows[1].mean()),
        difference_low=float(gap_low),
        difference_high=float(gap_high),
        p=p,
        agreement=counts[winner[0]] / counts.total(),
        notes=tuple(notes),
    )
