"""What reviewers have judged so far, as the log says, and the next judgement, unless somebody was faster.

The log is the truth: other processes may write it at the same time, and what they add is read on.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from harness.storage.append_log import Position
from harness.testset.judgements import SAMPLES, Judgement, JudgementLog, text_digest
from retrievers.base import Query

UNKNOWN: Literal["?"] = "?"  # the judge cannot tell

# A grade, 0 to 3; of the need for retrieval, 1 (needs it) or 0; UNKNOWN; None: not judged.
Value = int | Literal["?"] | None
# What is judged, and why: query_id, doc_id (None: the need for retrieval), round, sample. A judgement that was made for
# one sample does not count for another, as only the drawn ones enter estimates.
Target = tuple[str, str | None, int, str]


class JudgementChanged(Exception):
    """The judgement to replace is no longer the one that the reviewer saw. value: what it is now."""

    def __init__(self, value: Value) -> None:
        super().__init__(value)
        self.value = value


class ReviewLedger:
    """The judgements of some judges.

    queries: query_id -> query, of the test set; judgements of other texts do not hold. judges: whose judgements are
    kept, as in `Judgement.by`.
    """

    def __init__(self, log: JudgementLog, queries: Mapping[str, Query], judges: Collection[str]) -> None:
        self._log = log
        self._digests = {query_id: text_digest(query) for query_id, query in queries.items()}
        self._values: dict[str, dict[Target, Value]] = {judge: {} for judge in judges}
        self._changes: dict[str, list[Target]] = {judge: [] for judge in judges}
        self._position = Position()
        self._lock = threading.RLock()  # whoever has closed it may still read
        with self._lock:
            self._read_on()

    def values(self, by: str) -> tuple[dict[Target, Value], int]:
        """(everything that a judge has judged, the revision: how many judgements of this judge have been read)."""
        return self.changes(by, 0)

    def changes(self, by: str, since: int) -> tuple[dict[Target, Value], int]:
        """(what a judge has judged after a revision, the revision now); None for what has been withdrawn."""
        with self._lock:
            self._read_on()
            return {one: self._values[by].get(one) for one in self._changes[by][since:]}, len(self._changes[by])

    def put(self, judgement: Judgement, before: Value) -> int:
        """Append a judgement; it is on the disk when this returns. The revision.

        A judgement that stands already is not repeated. before: what the reviewer saw. Changed if it is no longer so.
        """
        target = target_of(judgement)
        with self._lock, self._log.appending() as add:
            self._read_on()
            value = self._values[judgement.by].get(target)
            if value != value_of(judgement):
                if value != before:
                    raise JudgementChanged(value)
                add(judgement)
                self._read_on()
            return len(self._changes[judgement.by])

    def close(self) -> None:
        """Wait until no judgement is being written, and take no more from other threads."""
        self._lock.acquire()

    def _read_on(self) -> None:
        found, self._position = self._log.since(self._position)
        self._take(found)

    def _take(self, judgements: Iterable[Judgement]) -> None:
        for one in judgements:
            if one.by in self._values and self._digests.get(one.query_id) == one.text:
                values, target = self._values[one.by], target_of(one)
                others = [(*target[:3], sample) for sample in SAMPLES if sample != one.sample]
                for replaced in [other for other in others if values.get(other) is not None]:
                    values[replaced] = None
                    self._changes[one.by].append(replaced)
                values[target] = value_of(one)
                self._changes[one.by].append(target)


def value_of(judgement: Judgement) -> Value:
    """What a judgement says; None if it has been withdrawn."""
    said = judgement.needs if judgement.doc_id is None else judgement.grade
    return None if judgement.withdrawn else UNKNOWN if said is None else int(said)


def target_of(judgement: Judgement) -> Target:
    return judgement.query_id, judgement.doc_id, judgement.round, judgement.sample
