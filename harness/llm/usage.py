"""The log of language models' replies, so that no reply is paid for twice; the tokens and the cost of replies.

A row of the log has the key of the request, the reply, and the endpoint's token counts, but neither the prompt nor the
API key. Besides the log, the folder may have files with rows from other machines. These files never change.
"""

from __future__ import annotations

import json
import math
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar

from harness.config.text import counted
from harness.storage.append_log import FILE, OTHERS, START, AppendLog, Shortened
from harness.storage.typed import HIDDEN

Holding = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Completion:
    """A reply or refusal by a language model. finish: why the reply ended, as the endpoint says: `stop`, `length` (cut
    off), `content_filter` or `refusal`. input_tokens, output_tokens: None if the endpoint does not count tokens.
    expected_input: the estimate of `input_tokens`."""

    text: str
    finish: str = "stop"
    input_tokens: int | None = None
    output_tokens: int | None = None
    expected_input: int = 0


@dataclass(frozen=True, slots=True)
class _Row:
    key: str
    reply: Completion


class ReplyLog:
    """Key of a request -> its replies, in order of arrival. Threads may add replies at the same time;
    processes take turns to hold the lock `FOLDER.lock`.

    folder: folder of the log; None: keep replies only in memory.
    turn: a second lock, from `Cache.adding`, to hold while replies are added.
    """

    def __init__(self, folder: Path | None, turn: Holding = nullcontext) -> None:
        self._turn = turn
        self._log = _log(folder / FILE, folder.with_name(f"{folder.name}.lock")) if folder else None
        self._others: set[Path] = set()  # files of other machines, already read
        self._found: dict[str, list[Completion]] = defaultdict(list)
        self._position = START
        self._add: Callable[..., None] = lambda row: None
        self._adding = threading.Lock()

    def __getitem__(self, key: str) -> tuple[Completion, ...]:
        return tuple(self._found.get(key, ()))

    @contextmanager
    def adding(self) -> Iterator[None]:
        """Hold the log's lock and `turn` for a `with` block. Before the block, read what other processes have added."""
        if self._log is None:
            yield
            return
        with self._log.appending() as self._add, self._turn():
            self.refresh()
            yield

    def add(self, key: str, completion: Completion) -> None:
        """Write a reply to the log. Call this only within `adding`. Raise OSError if the reply cannot be written."""
        with self._adding:
            if self._log is None:
                self._found[key].append(completion)
            else:
                self._add(_Row(key, completion))
                self._read_on(self._log)

    def refresh(self) -> None:
        """Read the rows that were added since the last call. Skip damaged lines, with a warning."""
        if self._log is None:
            return
        try:
            self._read_on(self._log)
        except Shortened:  # The cache entry was pruned meanwhile.
            self._found.clear()
            self._others.clear()
            self._position = START
            self._read_on(self._log)
        for other in sorted({*self._log.path.parent.glob(OTHERS)} - self._others):
            self._take(_log(other).read())
            self._others.add(other)

    def completions(self) -> Iterator[Completion]:
        for several in list(self._found.values()):
            yield from several

    def _read_on(self, log: AppendLog[_Row]) -> None:
        rows, self._position = log.since(self._position)
        self._take(rows)

    def _take(self, rows: list[_Row]) -> None:
        for row in rows:
            self._found[row.key].append(row.reply)


def _log(file: Path, lock: Path | None = None) -> AppendLog[_Row]:
    return AppendLog(file, _Row, sync="end", lenient=True, lock=lock)  # lenient: lost replies can be requested again


BYTES = 4  # estimated bytes of UTF-8 in a token
MESSAGE_TOKENS = 4  # estimated tokens that each message needs besides its text
CALIBRATED = 20  # Estimates are corrected once this many logged replies have token counts.


@dataclass(frozen=True)
class Price:
    """The prices of a million input tokens and a million output tokens, in any currency; None: unknown."""

    input: float | None = None
    output: float | None = None

    def __post_init__(self) -> None:
        if not all(one is None or 0 <= one < math.inf for one in (self.input, self.output)):
            raise ValueError("input and output must be prices per million tokens, 0 or more.")

    def of(self, input_tokens: int | None, output_tokens: int | None) -> float | None:
        """Return the cost of tokens; None if a price or a count is unknown."""
        if None in (self.input, self.output, input_tokens, output_tokens):
            return None
        assert self.input is not None and self.output is not None  # noqa: PT018 (for mypy)
        return (self.input * (input_tokens or 0) + self.output * (output_tokens or 0)) / 1e6


@dataclass(frozen=True)
class Usage:
    """The cost of replies. requests: number of answered requests, including those with unusable replies. cached: number
    of replies from the log. input_tokens, output_tokens: as counted by the endpoint. uncounted: number of replies
    without these counts."""

    json_too: ClassVar = ("cost",)

    price: Price = field(default=Price(), metadata=HIDDEN)
    requests: int = 0
    cached: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    uncounted: int = field(default=0, metadata=HIDDEN)

    @property
    def cost(self) -> float | None:
        """Return the cost in money; None if a price or the token count of a reply is unknown."""
        return None if self.uncounted else self.price.of(self.input_tokens, self.output_tokens)

    def since(self, earlier: Usage) -> Usage:
        counts = {one.name: getattr(self, one.name) - getattr(earlier, one.name) for one in fields(self)[1:]}
        return Usage(self.price, **counts)

    def plus(self, one: Completion) -> Usage:
        uncounted = one.input_tokens is None or one.output_tokens is None
        return replace(
            self,
            requests=self.requests + 1,
            input_tokens=self.input_tokens + (one.input_tokens or 0),
            output_tokens=self.output_tokens + (one.output_tokens or 0),
            uncounted=self.uncounted + uncounted,
        )

    def text(self) -> str:
        """Return, for example, `12 replies, 3,400 input and 560 output tokens, cost 0.0012`."""
        replies = counted(self.requests, "reply")
        if self.requests and self.uncounted == self.requests:
            return f"{replies}, whose tokens the endpoint does not count"
        found = f"{replies}, {_tokens(self.input_tokens, self.output_tokens)}"
        if self.uncounted:
            found += f" ({counted(self.uncounted, 'reply')} came without counts)"
        return found + ("" if self.cost is None else f", cost {_money(self.cost)}")


@dataclass(frozen=True)
class UsageEstimate:
    """The cost of asking, if the first reply to each request is usable.

    input_tokens: the sum of `tokens_of`, corrected by logged counts.
    output_tokens: from the mean of logged replies, or else from `Prompt.expects`; None if neither is known.
    cost: None if a price or `output_tokens` is unknown.
    """

    requests: int
    cached: int
    input_tokens: int
    output_tokens: int | None
    cost: float | None

    def text(self) -> str:
        """Return, for example, `12 requests (3 more replies are cached), about 3,400 input and 560 output tokens`."""
        found = counted(self.requests, "request")
        if self.cached:
            found += f" ({counted(self.cached, 'more reply')} {'is' if self.cached == 1 else 'are'} cached)"
        found += f", about {_tokens(self.input_tokens, self.output_tokens)}"
        return found + ("" if self.cost is None else f", cost about {_money(self.cost)}")


def estimated_tokens(text: str) -> float:
    """Estimate the tokens of a text: one token for 4 bytes of UTF-8 (4 Latin letters or 1.3 Hangul syllables).

    Compared with the tokenizer of Mistral Nemo (131,072 entries), the estimate is 6 % too high for Korean encyclopedia
    texts, 3 % too high for Python, and 8 to 16 % too low for Markdown. A tokenizer of 32,000 entries (Mistral 7B) needs
    1.9 times the estimate for Korean, and 1.2 to 1.3 times the estimate for code and English.
    """
    return len(text.encode("utf-8", "surrogatepass")) / BYTES


def tokens_of(body: Mapping[str, Any]) -> float:
    """Estimate the input tokens of a request. The schema counts too, since servers may put it into the prompt."""
    schema = json.dumps(body["response_format"], ensure_ascii=False) if "response_format" in body else ""
    return estimated_tokens(schema) + sum(MESSAGE_TOKENS + estimated_tokens(one["content"]) for one in body["messages"])


def calibration(completions: Sequence[Completion]) -> tuple[float, float | None]:
    """Return (ratio of counted to estimated input tokens, mean number of output tokens) of logged replies. If fewer
    than `CALIBRATED` replies have counts, the ratio is 1 and the mean is None."""
    counts = [(one.input_tokens, one.expected_input) for one in completions if one.input_tokens and one.expected_input]
    outputs = [one.output_tokens for one in completions if one.output_tokens is not None]
    given, expected = (sum(several) for several in zip(*counts, strict=True)) if len(counts) >= CALIBRATED else (1, 1)
    return given / expected, sum(outputs) / len(outputs) if len(outputs) >= CALIBRATED else None


def _tokens(given: int, taken: int | None) -> str:
    return f"{given:,} input and {'an unknown number of' if taken is None else f'{taken:,}'} output tokens"


def _money(value: float) -> str:
    return f"{value:,.2f}" if value >= 1 else f"{value:.2g}"
