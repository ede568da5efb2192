"""The log of what language models have replied: a reply that was paid for is on disk, and is never paid for again.

Beside the log lie files of other machines' lines, which never change. A row holds the key of the request, the reply and
what the endpoint counted; never the prompt, nor the key that authorises.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from harness.storage.append_log import AppendLog, Position, Shortened
from harness.storage.shared_log import FILE, OTHERS

Holding = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Completion:
    """What a language model replied.

    text: the reply, or the words in which the model refuses. finish: why it ended, in the endpoint's words: `stop`,
    `length` (cut off), `content_filter`, or `refusal`. input_tokens, output_tokens: as the endpoint counts them; None
    where it does not. expected_input: what input_tokens was estimated to be.
    """

    text: str
    finish: str = "stop"
    input_tokens: int | None = None
    output_tokens: int | None = None
    expected_input: int = 0


@dataclass(frozen=True, slots=True)
class _Row:
    """A reply to a request. key: of the request."""

    key: str
    reply: Completion


class ReplyLog:
    """The replies to requests, by the key of the request, in the order in which they came.

    folder: of the log; None: replies are kept for this process alone.
    turn: what else is held while adding; `Cache.adding` gives it.

    Threads may add at the same time. Processes take turns: who adds holds the lock `FOLDER.lock`.
    """

    def __init__(self, folder: Path | None, turn: Holding = nullcontext) -> None:
        self._turn = turn
        self._log = _log(folder / FILE, folder.with_name(f"{folder.name}.lock")) if folder else None
        self._others: set[Path] = set()  # files of other machines that have been read
        self._found: dict[str, list[Completion]] = defaultdict(list)
        self._position = Position()
        self._add: Callable[..., None] = lambda row: None
        self._adding = threading.Lock()

    def __getitem__(self, key: str) -> tuple[Completion, ...]:
        return tuple(self._found.get(key, ()))

    @contextmanager
    def adding(self) -> Iterator[None]:
        """Hold the lock, with all that other processes have added before."""
        if self._log is None:
            yield
            return
        with self._log.appending() as self._add, self._turn():
            self.refresh()
            yield

    def add(self, key: str, completion: Completion) -> None:
        """Add a reply; it is on disk when this returns. OSError, such as of a full disk. Only while `adding`."""
        with self._adding:
            if self._log is None:
                self._found[key].append(completion)
            else:
                self._add(_Row(key, completion))
                self._read_on(self._log)

    def refresh(self) -> None:
        """Read what was added since the last time; damaged lines are left out, with a warning."""
        if self._log is None:
            return
        try:
            self._read_on(self._log)
        except Shortened:  # the entry was pruned meanwhile
            self._found.clear()
            self._others.clear()
            self._position = Position()
            self._read_on(self._log)
        for other in sorted({*self._log.path.parent.glob(OTHERS)} - self._others):
            self._take(_log(other).read())
            self._others.add(other)

    def completions(self) -> Iterator[Completion]:
        """All replies."""
        for several in list(self._found.values()):
            yield from several

    def _read_on(self, log: AppendLog[_Row]) -> None:
        rows, self._position = log.since(self._position)
        self._take(rows)

    def _take(self, rows: list[_Row]) -> None:
        for row in rows:
            self._found[row.key].append(row.reply)


def _log(file: Path, lock: Path | None = None) -> AppendLog[_Row]:
    """A lost reply can be asked for again."""
    return AppendLog(file, _Row, sync="end", lenient=True, lock=lock)
