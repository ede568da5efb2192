"""The rule that a fusion learns, and the file fusion.json."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harness.config.schema import ReadPath
from harness.data.files import json_file, required
from harness.errors import BadInput, did_you_mean
from harness.storage.typed import encoded, row_as
from retrievers.base import Ranking
from retrievers.combine.fusion import LARGEST, RankPoints, SumOfPoints, normalised, reciprocal_ranks

VERSION = 1  # version of fusion.json; increase it when existing rules would fuse differently


# The features that a ranking gives a candidate. If the ranking did not return the candidate, z_score is the
# ranking's lowest z-score, and all other features are 0.
FEATURES: dict[str, Callable[[Ranking], RankPoints]] = {
    "z_score": partial(normalised, "z_score"),  # as in `WeightedSum`
    "min_max": partial(normalised, "min_max"),
    "reciprocal_rank_60": partial(reciprocal_ranks, 60),  # 1 / (60 + rank), as in `RRF`
    "reciprocal_rank_10": partial(reciprocal_ranks, 10),
    # 1 for each returned document, so the sum over the rankings is the number of rankings that returned the document
    "returned": lambda ranking: RankPoints((ranking.docs >= 0).astype(np.float64)),
}


@dataclass(frozen=True)
class WeightedFeature:
    ranking: str
    feature: str
    weight: float

    def __post_init__(self) -> None:
        if self.feature not in FEATURES:
            near = did_you_mean(self.feature, FEATURES)
            raise BadInput(f"feature is {self.feature!r:.60}: choose one of {', '.join(FEATURES)}.{near:.100}")


@dataclass(frozen=True)
class FusionRule(SumOfPoints):
    """Scores a candidate by a weighted sum of features.

    rankings: names of the component rankings, ascending.
    """

    rankings: tuple[str, ...]
    features: tuple[WeightedFeature, ...]

    def __post_init__(self) -> None:
        if len(set(self.rankings)) != len(self.rankings) or len(self.rankings) < 2:
            named = f"{list(self.rankings)!r:.60}"
            raise BadInput(f"rankings must name two or more component rankings, each once, but is {named}.")
        for one in self.features:
            if one.ranking not in self.rankings:
                near = did_you_mean(one.ranking, self.rankings)
                known = f"{', '.join(self.rankings):.300}"
                raise BadInput(f"features: ranking is {one.ranking!r:.60}: choose one of {known}.{near:.100}")
        if len({(one.ranking, one.feature) for one in self.features}) != len(self.features):
            raise BadInput("features lists a feature of a ranking twice.")

    @classmethod
    def of(cls, rankings: Collection[str], weights: Mapping[tuple[str, str], float]) -> FusionRule:
        """Return the rule with these weights, (ranking, feature) -> weight. Leave out weights of 0."""
        kept = ((*feature, float(weight)) for feature, weight in weights.items() if weight)
        return cls(tuple(sorted(rankings)), tuple(WeightedFeature(*one) for one in kept))

    @property
    def weights(self) -> dict[tuple[str, str], float]:
        return {(one.ranking, one.feature): one.weight for one in self.features}

    def check(self, names: Collection[str]) -> None:
        lacking = [name for name in self.rankings if name not in names]
        if lacking or len(names) != len(self.rankings):
            more = [name for name in names if name not in self.rankings]
            what = [f"lacks {', '.join(lacking):.300}"] * bool(lacking) + [f"also has {', '.join(more)}"] * bool(more)
            raise BadInput(
                f"the fusion was learnt for the component rankings {', '.join(self.rankings):.300}, but the retriever "
                f"{' and '.join(what)}. Choose the retriever with which the fusion was learnt."
            )

    def points(self, name: str, ranking: Ranking) -> RankPoints:
        returned, absent = np.zeros(ranking.docs.shape), np.zeros((len(ranking.docs), 1))
        for one in self.features:
            if one.ranking == name:
                points = FEATURES[one.feature](ranking)
                returned, absent = returned + one.weight * points.returned, absent + one.weight * points.absent
        return RankPoints(returned, absent)


class FittedFusion:
    """Applies the rule of another run. file: its fusion.json. weights: None or all 1, since the rule has weights."""

    recorded_as = "fusion/fitted"
    learns = False

    def __init__(self, file: ReadPath, weights: dict[str, float] | None = None) -> None:
        self.rule = read_rule(file)
        for name, weight in (weights or {}).items():
            if weight != 1:
                raise BadInput(
                    f"weights.{name}={weight!r:.60}: {file} already has weights. Leave fusion.weights out, or choose "
                    "fusion=weighted_sum to set them."
                )

    @staticmethod
    def identify(file: str, weights: dict[str, float] | None = None) -> dict[str, Any]:
        """Return the rule as the identity of the fusion, so the path of the file is not part of it."""
        return {"rule": encoded(read_rule(file))}

    def check(self, names: Collection[str]) -> None:
        self.rule.check(names)

    def fuse(self, rankings: Mapping[str, Ranking], k: int) -> Ranking:
        return self.rule.fuse(rankings, k)


def read_rule(file: str) -> FusionRule:
    """Return the rule in a fusion.json. Raise BadInput, with the file and key, if the file is missing or invalid."""
    try:
        content = json_file(Path(file))
        version = required(content, "version", file)
        if version != VERSION or isinstance(version, bool):
            raise BadInput(
                f"{file}: version is {version!r:.60}, but this program reads version {VERSION}. Learn the fusion "
                "again, or use the program that wrote the file."
            )
        rule = row_as(FusionRule, required(content, "rule", file), f"{file}: rule")
        most = max(map(abs, rule.weights.values()), default=0.0)
        if not 0 < most <= LARGEST:
            raise BadInput(
                f"{file}: rule: the greatest absolute weight is {most:g}, but must be above 0 and at most "
                f"{LARGEST:,.0f}."
            )
        return rule
    except BadInput as error:
        raise BadInput(f"{error} fusion.file needs the fusion.json of a run with fusion=learned.") from None
