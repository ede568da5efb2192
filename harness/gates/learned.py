"""Gates that learn from labels, and are judged on queries whose labels they have not seen.

A gate learns a *rule*: numbers that turn signals into how many documents a query gets, kept as JSON with the run and
applied to unlabelled queries as well. Everything about a rule is learnt anew without each fold of the queries: the
choice of signal and source, coefficients, thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from harness.gates import calibration
from harness.gates.gate import Decision, check_comparable, check_signal, check_source, parts_of
from harness.gates.payoff import Payoff
from harness.gates.rule import Rule, _written
from harness.gates.signals import SIGNALS, GateInputs, choices, signal_of
from retrievers.base import BadInput

QUICK = tuple(name for name, kind in SIGNALS.items() if not kind.slow)
INNER = 5  # folds within the queries that are learnt from, to choose by
STRENGTHS = (0.01, 0.1, 1.0)  # inverse regularisation of the logistic regression, to choose from


class _Learner:
    """What gates that learn have in common: the rule for all queries, and rules that have not seen some of them.

    folds: of the queries that are learnt from. repeats: how often they are dealt anew.
    """

    learns = True

    def __init__(self, signals: list[str] | None, sources: list[str] | None, k: int, folds: int, repeats: int) -> None:
        signals = list(QUICK) if signals is None else signals
        if not signals:
            raise BadInput("signals is empty. Say null for all signals that are quick to have.")
        for name in signals:
            check_signal(name, k)
        for key, value, least in (("folds", folds, 2), ("repeats", repeats, 1)):
            if value < least:
                raise BadInput(f"{key}={value}: at least {least} is needed.")
        self.signals, self.sources, self.k = signals, sources, k
        self.folds, self.repeats = folds, repeats
        self.parts: tuple[str, ...] = parts_of(signals)

    @staticmethod
    def identify(**arguments: Any) -> dict[str, Any]:
        """What stands for the arguments: a new quick signal makes another gate of `signals: null`."""
        return arguments | {"signals": list(QUICK) if arguments["signals"] is None else arguments["signals"]}

    def check(self, names: Collection[str]) -> None:
        for source in self.sources or ():
            check_source(source, names, "gate.sources")
        if not choices(self.signals, self.sources or names):
            check_comparable(self.signals[0], names)

    def decide(self, inputs: GateInputs, payoff: Payoff | None = None) -> Decision:
        if payoff is None:
            raise ValueError("a gate that learns needs a payoff")
        rows = payoff.rows
        if not len(rows):
            raise BadInput(
                "The gate has no query to learn from: none is labelled in the part that select_on names. "
                "Raise public=, or say select_on=all."
            )
        everything = np.ones((1, len(rows)))
        inner = [_dealt(payoff, INNER, repeat) for repeat in range(self.repeats)]
        rule = self.rules(inputs, payoff, everything, inner)[0]
        signal = rule.signal(inputs)
        shown = rule.shown(signal)
        held_out = None
        if len(rows) > 1:
            held_out = np.tile(shown, (self.repeats, 1))
            for repeat in range(self.repeats):
                fold = _dealt(payoff, self.folds, self.repeats + repeat)
                learn = calibration.held_out(everything, fold)[0][0]
                others = self.rules(inputs, payoff, learn, [inner[repeat]])
                for number, other in enumerate(others):
                    mine = rows[fold == number]
                    held_out[repeat, mine] = other.shown(other.signal(inputs))[mine]
        return Decision(shown, signal, self._told(rule, payoff, signal), held_out, self._curve(rule, payoff, signal))

    def rules(self, inputs: GateInputs, payoff: Payoff, weights: np.ndarray, inner: Sequence[np.ndarray]) -> list[Rule]:
        """A rule for each row of `weights` (float64 [B, n]; 0 = not to be looked at), learnt from nothing else.

        inner: ways to deal the n queries into folds, to choose by.
        """
        raise NotImplementedError

    def levels(self, payoff: Payoff) -> tuple[int, ...]:
        return (payoff.values.shape[1] - 1, 0)

    def tried(self, inputs: GateInputs) -> list[tuple[str | None, str]]:
        return choices(self.signals, self.sources or list(inputs.rankings))

    def _curve(self, rule: Rule, payoff: Payoff, signal: np.ndarray) -> calibration.Curve:
        """The objective at every threshold between withholding and the greatest number of documents."""
        return calibration.curve(signal[payoff.rows], payoff.levels((max(rule.levels), 0)))

    def _told(self, rule: Rule, payoff: Payoff, signal: np.ndarray) -> dict[str, Any]:
        rows, earned = payoff.rows, payoff.levels(rule.levels)
        level = (signal[rows, None] < np.array(rule.thresholds)).sum(axis=1)
        needs = payoff.needs[rows]
        notes = []
        if needs.all() or not needs.any():
            notes.append("every query needs retrieval" if needs.all() else "no query needs retrieval")
        if np.ptp(signal[rows]) == 0:
            notes.append("the signal is the same for all queries: no threshold tells them apart")
        if len(rows) == 1:
            notes.append("one labelled query: nothing can be held out")
        found = {
            "rule": rule.to_json(),
            "objective": payoff.name,
            "learnt_from": {"queries": len(rows), "needs_no_retrieval": int((~needs).sum())},
            "in_sample": float(earned[np.arange(len(rows)), level].mean()),
            "notes": notes,
        }
        if rule == rule.plain():  # with coefficients, the threshold is no function of the queries' own signals alone
            found["plateau"] = [_written(end) for end in calibration.plateau(signal[rows], earned)]
            intervals = calibration.bootstrap(signal[rows], earned, payoff.seed)
            found |= {f"{name}_interval": [_written(end) for end in ends] for name, ends in intervals.items()}
        return found


class AutoGate(_Learner):
    """One signal and a threshold on it, both chosen by the objective on queries held out.

    signals: to choose from; None = all that are quick to have. sources: names of raw rankings to choose from; None =
    all. k: places that some signals look at.
    """

    recorded_as = "gate/auto"

    def __init__(
        self,
        signals: list[str] | None = None,
        sources: list[str] | None = None,
        k: int = 10,
        folds: int = 10,
        repeats: int = 5,
    ) -> None:
        super().__init__(signals, sources, k, folds, repeats)

    def rules(self, inputs: GateInputs, payoff: Payoff, weights: np.ndarray, inner: Sequence[np.ndarray]) -> list[Rule]:
        tried, levels = self.tried(inputs), self.levels(payoff)
        earned = payoff.levels(levels)
        columns = [signal_of(inputs, name, source, self.k)[payoff.rows] for source, name in tried]
        totals = np.zeros((len(tried), len(weights)))
        if len(tried) > 1 and len(payoff.rows) > 1:
            for number, column in enumerate(columns):
                totals[number] = sum(calibration.cross_validated(weights, column, earned, fold) for fold in inner)
        best = (totals > totals.max(axis=0) - calibration.CLOSE).argmax(axis=0)  # of equals the first
        found = []
        for chosen, row in zip(best.tolist(), weights, strict=True):
            [thresholds] = calibration.fit(row[None], columns[chosen], earned)
            found.append(Rule((tried[chosen],), self.k, levels, tuple(thresholds.tolist())))
        return found


class DepthGate(AutoGate):
    """As AutoGate, and the surer it is the fewer documents it shows: 1, 2, ... up to top_k; least sure: none.

    The contest's MAP divides by the number of hits shown, so that a miss after the last hit costs nothing and one
    before it does; fewer documents can score higher.
    """

    recorded_as = "gate/depth"

    def levels(self, payoff: Payoff) -> tuple[int, ...]:
        return (*range(1, payoff.values.shape[1]), 0)


class ClassifierGate(_Learner):
    """Logistic regression of "needs retrieval" on standardised signals, and a threshold on its logit.

    Its strength of regularisation is the one with the least log loss on queries held out; the threshold is fitted to
    the objective on the logits of queries held out. embedding: whether the query's embedding by the run's encoder
    enters too; all its values together weigh as much as one signal does.
    """

    recorded_as = "gate/classifier"
    packages = ("scikit-learn",)

    def __init__(
        self,
        signals: list[str] | None = None,
        sources: list[str] | None = None,
        k: int = 10,
        embedding: bool = False,
        folds: int = 10,
        repeats: int = 3,
    ) -> None:
        super().__init__(signals, sources, k, folds, repeats)
        self.embedding = embedding
        self.parts += ("encoder",) if embedding else ()

    def rules(self, inputs: GateInputs, payoff: Payoff, weights: np.ndarray, inner: Sequence[np.ndarray]) -> list[Rule]:
        from threadpoolctl import threadpool_limits

        features, rows = tuple(self.tried(inputs)), payoff.rows
        columns = np.stack([signal_of(inputs, name, source, self.k)[rows] for source, name in features], axis=1)
        width = columns.shape[1]
        if self.embedding:
            columns = np.hstack([columns, inputs.embeddings()[rows]])
        share = np.ones(columns.shape[1])
        share[width:] = math.sqrt(max(columns.shape[1] - width, 1))
        needs, levels = payoff.needs[rows], self.levels(payoff)
        earned = payoff.levels(levels)
        found = []
        with threadpool_limits(1):  # fits this small are slower in several threads
            for row in weights:
                learnt = _logistic(columns, share, needs, earned, row > 0, inner[0])
                centre, scale, coefficients = (tuple(one.tolist()) for one in learnt[:3])
                found.append(
                    Rule(
                        features, self.k, levels, (learnt[4],), centre[:width], scale[:width], coefficients[:width],
                        learnt[3], coefficients[width:], centre[width:], scale[width:],
                    )
                )  # fmt: skip
        return found


def _dealt(payoff: Payoff, count: int, number: int) -> np.ndarray:
    """int [n]: the queries that are learnt from, dealt into folds; another dealing for each number below 1,000."""
    needs = payoff.needs[payoff.rows]
    return calibration.folds(needs, min(count, len(needs)), 1000 * payoff.seed + number)


def _logistic(
    columns: np.ndarray, share: np.ndarray, needs: np.ndarray, earned: np.ndarray, mine: np.ndarray, fold: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float, float]:
    """(centre, scale, coefficients, intercept, threshold) from the queries `mine` (bool [n]).

    columns: float64 [n, F]; share: how much each is scaled down besides. Where all of `mine` are of one kind there
    is nothing to tell apart: coefficients of 0 and a threshold that shows all or nothing.
    """
    centre, spread = columns[mine].mean(axis=0), columns[mine].std(axis=0)
    flat = spread <= 1e-12 * np.abs(columns[mine]).max(axis=0, initial=0)
    scale = np.where(flat, 1.0, spread) * share
    scaled = np.where(flat, 0.0, (columns - centre) / scale)
    if len(set(needs[mine].tolist())) < 2:
        gained = earned[mine, 0].sum() >= earned[mine, 1].sum()
        return centre, scale, np.zeros(columns.shape[1]), 0.0, -math.inf if gained else math.inf
    logits = np.full((len(STRENGTHS), len(needs)), np.nan)
    for number in range(fold.max() + 1):
        learn, judge = mine & (fold != number), mine & (fold == number)
        if judge.any():
            for strength, row in zip(STRENGTHS, logits, strict=True):
                weights, intercept = _regress(scaled[learn], needs[learn], strength)
                row[judge] = scaled[judge] @ weights + intercept
    signs = np.where(needs[mine], 1.0, -1.0)
    best = int(np.logaddexp(0.0, -signs * logits[:, mine]).mean(axis=1).argmin())
    [[threshold]] = calibration.fit(np.ones((1, int(mine.sum()))), logits[best, mine], earned[mine])
    weights, intercept = _regress(scaled[mine], needs[mine], STRENGTHS[best])
    return centre, scale, np.where(flat, 0.0, weights), intercept, float(threshold)


def _regress(scaled: np.ndarray, needs: np.ndarray, strength: float) -> tuple[np.ndarray, float]:
    """Coefficients and intercept; a fold without a class is answered by the other, smoothed."""
    from sklearn.linear_model import LogisticRegression

    if len(set(needs.tolist())) < 2:
        share = (needs.sum() + 0.5) / (len(needs) + 1)
        return np.zeros(scaled.shape[1]), math.log(share / (1 - share))
    model = LogisticRegression(C=strength, max_iter=1000).fit(scaled, needs)
    return model.coef_[0], float(model.intercept_[0])
