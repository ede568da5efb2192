"""The ranking of one retriever as `harness run` computes it, for scripts that compare rankings and time stages."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.config.hydra_app import compose
from harness.pipeline.run_config import RunConfig
from harness.pipeline.session import Clock, load_dataset, open_session
from harness.pipeline.steps import retrieve
from retrievers.base import Ranking


@dataclass(frozen=True, eq=False)
class Timed:
    """A ranking, and the seconds of each stage: read, index, search."""

    ranking: Ranking
    seconds: dict[str, float]


def one_ranking(words: Sequence[str]) -> Timed:
    """words: overrides of `harness run`, with one retriever."""
    config, invocation = compose("run", list(words))
    run = RunConfig.of(config)
    clock = Clock()
    with clock.stage("read"):
        dataset = load_dataset(run, invocation.choices["dataset"])
    session = open_session(run, dataset, clock)
    (ranking,) = retrieve(run.retriever, session, run.depth).values()
    return Timed(ranking, clock.seconds)


def rows(ranking: Ranking) -> list[tuple[str, list[str], list[float]]]:
    """(query, its documents, their scores) of each query: equal where rankings are, in every bit of every score."""
    found = []
    for place, query in enumerate(ranking.query_ids):
        docs = [int(one) for one in ranking.docs[place] if one >= 0]
        scores = [float(one) for one in ranking.scores[place][: len(docs)]]
        found.append((query, [ranking.doc_ids[one] for one in docs], scores))
    return found


def main() -> None:
    """Print the rows as JSON: `python scripts/one_ranking.py OUTPUT key=value ...`."""
    ranking = one_ranking(sys.argv[2:]).ranking
    Path(sys.argv[1]).write_text(json.dumps(rows(ranking)), "utf-8")


def saved(path: Path) -> Any:
    """The rows that `main` wrote."""
    return [tuple(row) for row in json.loads(path.read_text("utf-8"))]


if __name__ == "__main__":
    main()
