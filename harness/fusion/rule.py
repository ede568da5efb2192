"""The rule that a fusion learns: apply it, write it to JSON, read it back."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.schema import ReadPath
from harness.data.files import field, json_file, required
from harness.errors import BadInput, did_you_mean
from retrievers.base import Ranking
from retrievers.combine.fusion import LARGEST, RankPoints, SumOfPoints, normalised, reciprocal_ranks

VERSION = 1  # of fusion.json: raise it when a rule of before would fuse otherwise


def _returned(ranking: Ranking) -> RankPoints:
    present = (ranking.docs >= 0).astype(np.float64)
    return RankPoints(present, np.zeros((len(present), 1)))


# What a ranking knows of a candidate. A document that it did not return gets 0, with z_score the lowest z-score.
FEATURES: dict[str, Callable[[Ranking], RankPoints]] = {
    "z_score": partial(normalised, "z_score"),  # as in `WeightedSum`
    "min_max": partial(normalised, "min_max"),
    "reciprocal_rank_60": partial(reciprocal_ranks, 60),  # 1 / (60 + rank), as in `RRF`
    "reciprocal_rank_10": partial(reciprocal_ranks, 10),
    "returned": _returned,  # 1: the sum over rankings says how many of them agree
}


@dataclass(frozen=True)
class FusionRule:
    """The score of a candidate as a weighted sum of what the component rankings know of it.

    rankings: names of the component rankings, ascending. All documents that one of them returned are candidates.
    features: (ranking, name in FEATURES) each.
    weights:  one per feature.
    """

    rankings: tuple[str, ...]
    features: tuple[tuple[str, str], ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, rankings: Collection[str], weights: Mapping[tuple[str, str], float]) -> FusionRule:
        """weights: (ranking, feature) -> weight; those of 0 are left out."""
        kept = {feature: weight for feature, weight in weights.items() if weight}
        return cls(tuple(sorted(rankings)), tuple(kept), tuple(map(float, kept.values())))

    def fuse(self, rankings: Mapping[str, Ranking], k: int) -> Ranking:
        """The k best candidates of each query. BadInput as from `check`."""
        return _Applied(self).fuse(rankings, k)

    def check(self, names: Collection[str]) -> None:
        """BadInput unless these are the component rankings that the rule was learnt for."""
        lacking = [name for name in self.rankings if name not in names]
        if lacking or len(names) != len(self.rankings):
            more = [name for name in names if name not in self.rankings]
            what = [f"lacks {', '.join(lacking):.300}"] * bool(lacking) + [f"has also {', '.join(more)}"] * bool(more)
            raise BadInput(
                f"the fusion was learnt for the component rankings {', '.join(self.rankings):.300}, and the retriever "
                f"{' and '.join(what)}. Choose the retriever that it was learnt with."
            )

    def to_json(self) -> dict[str, Any]:
        """The rule as plain JSON; `from_json` reads it."""
        features = [
            {"ranking": ranking, "feature": name, "weight": weight}
            for (ranking, name), weight in zip(self.features, self.weights, strict=True)
        ]
        return {"rankings": list(self.rankings), "features": features}

    @classmethod
    def from_json(cls, content: Any, where: str = "rule") -> FusionRule:
        """The rule that `to_json` wrote. BadInput, which names the key, if `content` is no rule. where: its place."""
        if not isinstance(content, dict):
            raise BadInput(f"{where} is {content!r:.60}, but must be an object.")
        _refuse_unknown(content, ("rankings", "features"), where)
        rankings = tuple(field(content, "rankings", list, where))
        if not all(isinstance(name, str) for name in rankings) or len(set(rankings)) != len(rankings):
            raise BadInput(f"{where}.rankings must name each component ranking once, but is {list(rankings)!r:.60}.")
        if len(rankings) < 2:
            raise BadInput(f"{where}.rankings must name two or more rankings: a single one needs no fusion.")
        weights: dict[tuple[str, str], float] = {}
        for number, row in enumerate(field(content, "features", list, where)):
            feature, weight = _feature(row, rankings, f"{where}.features[{number}]")
            if feature in weights:
                raise BadInput(f"{where}.features[{number}] repeats {feature[1]} of {feature[0]:.60}.")
            weights[feature] = weight
        if not any(weights.values()):
            raise BadInput(f"{where}.features is empty, or all its weights are 0: then no document is above another.")
        return cls.of(rankings, weights)


class FittedFusion:
    """Applies a rule that another run has learnt; needs no labels.

    file: the fusion.json of that run.
    weights: not for use: the weights are those of the file. Retrievers with several rankings give a weight of 1 to
        each; anything else is refused.
    """

    recorded_as = "fusion/fitted"
    learns = False

    def __init__(self, file: ReadPath, weights: dict[str, float] | None = None) -> None:
        self.rule = read_rule(file)
        for name, weight in (weights or {}).items():
            if weight != 1:
                raise BadInput(
                    f"weights.{name}={weight!r:.60}: the weights are those of {file}. Leave fusion.weights out, or "
                    "choose fusion=weighted_sum to set them."
                )

    @staticmethod
    def identify(file: str, weights: dict[str, float] | None = None) -> dict[str, Any]:
        """The content of the file identifies the fusion, not its path."""
        return {"rule": read_rule(file).to_json()}

    def check(self, names: Collection[str]) -> None:
        """BadInput unless these are the component rankings that the rule was learnt for."""
        self.rule.check(names)

    def fuse(self, rankings: Mapping[str, Ranking], k: int) -> Ranking:
        """The k best candidates of each query."""
        return self.rule.fuse(rankings, k)


def read_rule(file: str) -> FusionRule:
    """The rule in a fusion.json. BadInput, which names the file and the key, if there is none."""
    try:
        content = json_file(Path(file))
        version = required(content, "version", file)
        if version != VERSION or isinstance(version, bool):
            raise BadInput(
                f"{file}: version is {version!r:.60}, and this program reads version {VERSION}. Learn the fusion "
                "again, or use the program that wrote the file."
            )
        return FusionRule.from_json(required(content, "rule", file), f"{file}: rule")
    except BadInput as error:
        raise BadInput(f"{error} fusion.file needs the fusion.json of a run with fusion=learned.") from None


class _Applied(SumOfPoints):
    """A rule as the sum of what each ranking gives."""

    recorded_as = "fusion/rule"

    def __init__(self, rule: FusionRule) -> None:
        super().__init__(None)
        self._rule = rule
        self._own: dict[str, list[tuple[str, float]]] = {name: [] for name in rule.rankings}
        for (ranking, name), weight in zip(rule.features, rule.weights, strict=True):
            self._own[ranking].append((name, weight))

    def check(self, names: Collection[str]) -> None:
        self._rule.check(names)

    def points(self, name: str, ranking: Ranking) -> RankPoints:
        returned, absent = np.zeros(ranking.docs.shape), np.zeros((len(ranking.docs), 1))
        for feature, weight in self._own[name]:
            points = FEATURES[feature](ranking)
            returned, absent = returned + weight * points.returned, absent + weight * points.absent
        return RankPoints(returned, absent)


def _feature(row: Any, rankings: Collection[str], where: str) -> tuple[tuple[str, str], float]:
    """((ranking, feature), weight)."""
    if not isinstance(row, dict):
        raise BadInput(f"{where} is {row!r:.60}, but must be an object.")
    _refuse_unknown(row, ("ranking", "feature", "weight"), where)
    ranking, name = field(row, "ranking", str, where), field(row, "feature", str, where)
    for value, known, key in ((ranking, rankings, "ranking"), (name, FEATURES, "feature")):
        if value not in known:
            hint = did_you_mean(value, known)
            raise BadInput(f"{where}.{key} is {value!r:.60}: choose one of {', '.join(known):.300}.{hint:.100}")
    weight = required(row, "weight", where)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not abs(weight) <= LARGEST:
        raise BadInput(f"{where}.weight is {weight!r:.60}: give a number from -{LARGEST:,.0f} to {LARGEST:,.0f}.")
    return (ranking, name), float(weight)


def _refuse_unknown(content: Mapping[str, Any], known: Collection[str], where: str) -> None:
    for name in content:
        if name not in known:
            raise BadInput(f"{where}.{name:.60} is unknown.{did_you_mean(name, known)}")
