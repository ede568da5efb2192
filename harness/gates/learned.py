"""Gates that learn from labels and are scored on queries whose labels they have not seen.

A gate learns a *rule*, which turns signals into the number of documents that a query gets. The run saves the rule as
JSON. A rule also applies to unlabelled queries. For out-of-fold results, the queries of each fold are decided by a
rule that was learnt from all other folds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from harness.errors import BadInput
from harness.gates import calibration
from harness.gates.gate import Decision, TopK, check_comparable, check_signal, check_source, parts_of
from harness.gates.payoff import Payoff
from harness.gates.rule import Rule, json_number
from harness.gates.signals import SIGNALS, GateInputs, signal_choices, signal_of
from retrievers.base import AtMost

QUICK = tuple(name for name, spec in SIGNALS.items() if not spec.slow)
Folds = Annotated[int, AtMost(1_000, "a rule is learnt for each fold")]
Repeats = Annotated[int, AtMost(1_000, "everything is learnt again for each split")]
INNER = 5  # number of folds into which training queries are split for cross-validation
STRENGTHS = (0.01, 0.1, 1.0)  # inverse strengths of regularisation to try for the logistic regression


@dataclass(eq=False)
class Learner:
    """Base class of gates that learn. To add a gate, write a subclass with a method `rules`, and a file in conf/gate/.

    signals: names of signals; None for all fast signals. sources: component rankings to read; None for all.
    k: number of top ranks that some signals read, at least 2.
    folds: number of folds for out-of-fold decisions. repeats: number of different splits into folds.
    """

    signals: list[str] | None = None
    sources: list[str] | None = None
    k: TopK = 10
    folds: Folds = 10
    repeats: Repeats = 5

    learns = True

    def __post_init__(self) -> None:
        self.names = list(QUICK) if self.signals is None else self.signals
        if not self.names:
            raise BadInput("signals is empty. Use null for all fast signals.")
        for name in self.names:
            check_signal(name, self.k)
        calibration.check_splits(self.folds, self.repeats)
        self.parts: tuple[str, ...] = parts_of(self.names)

    @staticmethod
    def identify(**arguments: Any) -> dict[str, Any]:
        return arguments | {"signals": list(QUICK) if arguments["signals"] is None else arguments["signals"]}

    def check(self, names: Collection[str]) -> None:
        for source in self.sources or ():
            check_source(source, names, "gate.sources")
        if not signal_choices(self.names, self.sources or names):
            check_comparable(self.names[0], names)

    def decide(self, inputs: GateInputs, payoff: Payoff | None = None) -> Decision:
        if payoff is None:
            raise ValueError("a gate that learns needs a payoff")
        rule, out_of_fold, folds = self.learn(inputs, payoff)
        known, signal = payoff.within(np.ones(len(payoff.rows), bool)), rule.signal(inputs)
        return Decision(
            rule.shown(signal),
            signal,
            fitted=self._summary(rule, known, signal),
            out_of_fold=out_of_fold,
            folds=folds,
            curve=calibration.curve(signal[known.rows], known.levels((max(rule.levels), 0))),
        )

    def learn(self, inputs: GateInputs, payoff: Payoff) -> tuple[Rule, np.ndarray | None, np.ndarray | None]:
        """Return the rule learnt from all of `payoff.rows`, then `Decision.out_of_fold` and `Decision.folds`."""
        payoff.require_queries()
        everything = np.ones((1, len(payoff.rows)))
        needs, seed, repeats = payoff.needs[payoff.rows], payoff.seed, range(self.repeats)
        inner = [calibration.split(needs, INNER, seed, repeat) for repeat in repeats]
        folds = [calibration.split(needs, self.folds, seed, self.repeats + repeat) for repeat in repeats]
        rule = self.rules(inputs, payoff.within(everything[0] > 0), everything, inner)[0]
        if len(payoff.rows) < 2:
            return rule, None, None
        shown = rule.shown(rule.signal(inputs))
        return rule, self._out_of_fold(inputs, payoff, inner, folds, shown), np.stack(folds)

    def rules(self, inputs: GateInputs, payoff: Payoff, weights: np.ndarray, inner: Sequence[np.ndarray]) -> list[Rule]:
        """Return one rule per row of `weights`, learnt only from the queries with a weight above 0.

        weights: float64 [B, n], how often each query of `payoff.rows` counts.
        inner: splits of these queries into folds for cross-validation, int [n] each.
        """
        raise NotImplementedError

    def levels(self, payoff: Payoff) -> tuple[int, ...]:
        """Return the numbers of documents that a rule can show, from the most to the least confident level."""
        return (payoff.values.shape[1] - 1, 0)

    def tried(self, inputs: GateInputs) -> list[tuple[str | None, str]]:
        return signal_choices(self.names, self.sources or list(inputs.rankings))

    def _out_of_fold(
        self,
        inputs: GateInputs,
        payoff: Payoff,
        inner: Sequence[np.ndarray],
        folds: Sequence[np.ndarray],
        shown: np.ndarray,
    ) -> np.ndarray:
        out_of_fold = np.tile(shown, (self.repeats, 1))
        for repeat, fold in enumerate(folds):
            training, held_out = zip(*calibration.held_out(fold), strict=True)
            if payoff.unseen is None:
                rules = self.rules(inputs, payoff, np.stack(training).astype(float), [inner[repeat]])
            else:  # for each fold, the fusion learns another order, with other payoffs
                parts = [(payoff.within(used), used[None].astype(float)) for used in training]
                rules = [self.rules(inputs, known, row, [inner[repeat]])[0] for known, row in parts]
            for held, rule in zip(held_out, rules, strict=True):
                own = payoff.rows[held]
                out_of_fold[repeat, own] = rule.shown(rule.signal(inputs))[own]
        return out_of_fold

    def _summary(self, rule: Rule, payoff: Payoff, signal: np.ndarray) -> dict[str, Any]:
        rows, earned = payoff.rows, payoff.levels(rule.levels)
        level = calibration.level_at(signal[rows], np.array(rule.thresholds))
        needs = payoff.needs[rows]
        notes = []
        if needs.all() or not needs.any():
            notes.append("every query needs retrieval" if needs.all() else "no query needs retrieval")
        if np.ptp(signal[rows]) == 0:
            notes.append("the signal is the same for all queries: no threshold separates them")
        if len(rows) == 1:
            notes.append("only one labelled query: none can be held out")
        if payoff.unseen:
            notes.append("fitted to lists that the fusion made for each query without using that query's label")
        summary = {
            "rule": rule.to_json(),
            "objective": payoff.name,
            "learnt_from": {"queries": len(rows), "needs_no_retrieval": int((~needs).sum())},
            "in_sample": float(earned[np.arange(len(rows)), level].mean()),
            "notes": notes,
        }
        if rule.plain:  # not for rules with coefficients: `bootstrap` fits only thresholds
            summary["plateau"] = [json_number(end) for end in calibration.threshold_plateau(signal[rows], earned)]
            intervals = calibration.bootstrap(signal[rows], earned, payoff.seed)
            summary |= {f"{name}_interval": [json_number(end) for end in ends] for name, ends in intervals.items()}
        return summary


class AutoGate(Learner):
    """Chooses a signal by the objective on held-out queries, and fits its threshold. Arguments: see `Learner`."""

    recorded_as = "gate/auto"

    def rules(self, inputs: GateInputs, payoff: Payoff, weights: np.ndarray, inner: Sequence[np.ndarray]) -> list[Rule]:
        tried, levels = self.tried(inputs), self.levels(payoff)
        earned = payoff.levels(levels)
        columns = [signal_of(inputs, name, source, self.k)[payoff.rows] for source, name in tried]
        totals = np.zeros((len(tried), len(weights)))
        if len(tried) > 1 and len(payoff.rows) > 1:
            for number, column in enumerate(columns):
                totals[number] = sum(calibration.cross_validated(weights, column, earned, fold) for fold in inner)
        best = (totals > totals.max(axis=0) - calibration.CLOSE).argmax(axis=0)  # of equal totals, take the first
        rules = []
        for chosen, row in zip(best.tolist(), weights, strict=True):
            [thresholds] = calibration.fit(row[None], columns[chosen], earned)
            rules.append(Rule((tried[chosen],), self.k, levels, tuple(thresholds.tolist())))
        return rules


class DepthGate(AutoGate):
    """Like AutoGate, but shows 1, 2, ... top_k or 0 documents: one for the highest signals, none for the lowest.

    `modified_map` divides by the number of hits shown. A miss after the last hit costs nothing, but a miss before a
    hit lowers the score, so fewer documents can score higher.
    """

    recorded_as = "gate/depth"

    def levels(self, payoff: Payoff) -> tuple[int, ...]:
        return (*range(1, payoff.values.shape[1]), 0)


@dataclass(eq=False)
class ClassifierGate(Learner):
    """Logistic regression of "needs retrieval" on standardised signals, with a threshold on the logit.

    The regularisation strength is the one with the lowest log loss on held-out queries. The threshold is fitted to
    the logits of held-out queries.

    embedding: whether to use the query's embedding too. All its values together weigh as much as one signal.
    """

    repeats: Repeats = 3
    embedding: bool = False

    recorded_as = "gate/classifier"
    packages = ("scikit-learn",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.parts += ("encoder",) if self.embedding else ()

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
        rules = []
        for row in weights:
            with threadpool_limits(1):  # several threads make such small fits slower
                learnt, intercept, threshold = _logistic(columns, share, needs, earned, row > 0, inner[0])
            ofs = [*zip(("centre", "scale", "weights"), learnt[:, :width].tolist(), strict=True)]
            ofs += zip(("embedding_centre", "embedding_scale", "embedding"), learnt[:, width:].tolist(), strict=True)
            named: dict[str, Any] = {name: tuple(values) for name, values in ofs}
            rules.append(Rule(features, self.k, levels, (threshold,), intercept=intercept, **named))
        return rules


def _logistic(
    columns: np.ndarray, share: np.ndarray, needs: np.ndarray, earned: np.ndarray, used: np.ndarray, fold: np.ndarray
) -> tuple[np.ndarray, float, float]:
    """Learn from the queries in `used`. Return (centre, scale, weights) as float64 [3, F], intercept, and threshold."""
    centre, spread = columns[used].mean(axis=0), columns[used].std(axis=0)
    flat = spread <= 1e-12 * np.abs(columns[used]).max(axis=0, initial=0)
    scale = np.where(flat, 1.0, spread) * share
    scaled = np.where(flat, 0.0, (columns - centre) / scale)
    if len(set(needs[used].tolist())) < 2:
        show = earned[used, 0].sum() >= earned[used, 1].sum()
        return np.stack([centre, scale, np.zeros(len(scale))]), 0.0, -math.inf if show else math.inf
    logits = np.full((len(STRENGTHS), len(needs)), np.nan)
    for training, held_out in calibration.held_out(np.where(used, fold, -1)):
        if held_out.any():
            for strength, row in zip(STRENGTHS, logits, strict=True):
                weights, intercept = _regress(scaled[training], needs[training], strength)
                row[held_out] = scaled[held_out] @ weights + intercept
    signs = np.where(needs[used], 1.0, -1.0)
    best = int(np.logaddexp(0.0, -signs * logits[:, used]).mean(axis=1).argmin())
    [[threshold]] = calibration.fit(np.ones((1, int(used.sum()))), logits[best, used], earned[used])
    weights, intercept = _regress(scaled[used], needs[used], STRENGTHS[best])
    return np.stack([centre, scale, np.where(flat, 0.0, weights)]), intercept, float(threshold)


def _regress(scaled: np.ndarray, needs: np.ndarray, strength: float) -> tuple[np.ndarray, float]:
    from sklearn.linear_model import LogisticRegression

    if len(set(needs.tolist())) < 2:
        share = (needs.sum() + 0.5) / (len(needs) + 1)
        return np.zeros(scaled.shape[1]), math.log(share / (1 - share))
    model = LogisticRegression(C=strength, max_iter=1000).fit(scaled, needs)
    return model.coef_[0], float(model.intercept_[0])
