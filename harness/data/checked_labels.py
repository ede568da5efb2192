"""Labels that come partly from a language model, with what an honest estimate needs beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.data.span_labels import SpanQrels
from retrievers.base import Qrels


@dataclass(frozen=True)
class Checked:
    """The labels of the same queries by the model alone, and those of the queries that people checked.

    model: of all queries, without any judgement by people.
    people: of the checked queries alone, without any judgement by a model. These were drawn at random.
    strata: query_id -> the stratum from which it was drawn or not, of all queries that could have been drawn.
    """

    model: Qrels
    people: Qrels
    strata: Mapping[str, str]


@dataclass(frozen=True)
class FrozenQrels(SpanQrels):
    """The labels of a frozen test set, resolved from all judgements: adjudicated before person before model.

    `grades` are those of judged documents, not of evidence; `evidence` and `places` serve the measures of characters.

    checked: None if people have judged every pair, or nobody drew queries for them.
    notes: sentences for the user about the set.
    """

    checked: Checked | None = None
    notes: tuple[str, ...] = ()
