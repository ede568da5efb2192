"""Small stand-ins that several tests build their cases from."""

from collections.abc import Mapping

import numpy as np

from retrievers.base import Predictions


def predictions(lists: Mapping[str, list[str]]) -> Predictions:
    doc_ids = tuple({doc: None for row in lists.values() for doc in row})
    docs = np.full((len(lists), max(map(len, lists.values()), default=0)), -1, np.int32)
    for row, returned in enumerate(lists.values()):
        docs[row, : len(returned)] = [doc_ids.index(doc) for doc in returned]
    return Predictions(tuple(lists), doc_ids, docs)
