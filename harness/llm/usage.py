"""What language models cost: tokens as endpoints count them, and an estimate before anything is sent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.llm.reply_log import Completion

BYTES = 4  # of UTF-8 in a token
MESSAGE_TOKENS = 4  # that frame each message
CALIBRATED = 20  # logged replies from which on their counts correct the rule


@dataclass(frozen=True)
class Price:
    """Money per million tokens, in any currency; None: unknown."""

    input: float | None = None
    output: float | None = None

    def of(self, input_tokens: int | None, output_tokens: int | None) -> float | None:
        """What tokens cost; None if a price or a count is unknown."""
        if None in (self.input, self.output, input_tokens, output_tokens):
            return None
        assert self.input is not None and self.output is not None  # noqa: PT018 (for mypy)
        return (self.input * (input_tokens or 0) + self.output * (output_tokens or 0)) / 1e6


@dataclass(frozen=True)
class Usage:
    """What was asked.

    requests: answered by the endpoint, those included whose replies were of no use. cached: replies that came from the
    log. input_tokens, output_tokens: as the endpoint counts them. uncounted: replies without such counts.
    """

    price: Price = Price()
    requests: int = 0
    cached: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    uncounted: int = 0

    @property
    def cost(self) -> float | None:
        """Money; None without prices, or if the endpoint has not counted every reply."""
        return None if self.uncounted else self.price.of(self.input_tokens, self.output_tokens)

    def to_json(self) -> dict[str, Any]:
        """Return tokens and costs as plain JSON; the cost is null where it is not known."""
        names = ("requests", "cached", "input_tokens", "output_tokens")
        return {**{name: getattr(self, name) for name in names}, "cost": self.cost}

    def with_cached(self, replies: int) -> Usage:
        """With further replies from the log."""
        return replace(self, cached=self.cached + replies)

    def since(self, earlier: Usage) -> Usage:
        """What was asked after `earlier`."""
        counts = ("requests", "cached", "input_tokens", "output_tokens", "uncounted")
        return Usage(self.price, **{name: getattr(self, name) - getattr(earlier, name) for name in counts})

    def plus(self, one: Completion) -> Usage:
        """With one more reply of the endpoint."""
        uncounted = one.input_tokens is None or one.output_tokens is None
        return replace(
            self,
            requests=self.requests + 1,
            input_tokens=self.input_tokens + (one.input_tokens or 0),
            output_tokens=self.output_tokens + (one.output_tokens or 0),
            uncounted=self.uncounted + uncounted,
        )

    def text(self) -> str:
        """`12 replies, 3,400 input and 560 output tokens, cost 0.0012`, of requests that were sent."""
        replies = _count(self.requests, "reply", "replies")
        if self.requests and self.uncounted == self.requests:
            return f"{replies}, whose tokens the endpoint does not count"
        found = f"{replies}, {_tokens(self.input_tokens, self.output_tokens)}"
        if self.uncounted:
            found += f" ({_count(self.uncounted, 'reply', 'replies')} came without counts)"
        return found + ("" if self.cost is None else f", cost {_money(self.cost)}")


@dataclass(frozen=True)
class UsageEstimate:
    """What asking will take, if each request gets a usable reply at once.

    requests: to be sent. cached: replies that are there. input_tokens: by the rule of `tokens`, corrected by what
    logged requests had. output_tokens: as many for each as logged replies had on average, else as its prompt expects;
    None without either. cost: money; None without prices, or if output_tokens is unknown.
    """

    requests: int
    cached: int
    input_tokens: int
    output_tokens: int | None
    cost: float | None

    def text(self) -> str:
        """`12 requests (3 more replies are cached), about 3,400 input and 560 output tokens, about 0.0012`."""
        found = _count(self.requests, "request", "requests")
        if self.cached:
            found += f" ({_count(self.cached, 'more reply is', 'more replies are')} cached)"
        found += f", about {_tokens(self.input_tokens, self.output_tokens)}"
        return found + ("" if self.cost is None else f", cost about {_money(self.cost)}")


def tokens(text: str) -> float:
    """About how many tokens a text has: one for four bytes of UTF-8, so for four Latin letters or 1.3 of Hangul.

    Against the tokenizer of Mistral Nemo (131,072 entries), this is 6 % too many for Korean encyclopedia texts, 3 % too
    many for Python, and 8 to 16 % too few for Markdown. A tokenizer of 32,000 entries (Mistral 7B) needs 1.9 times as
    many tokens as this says for Korean, and 1.2 to 1.3 times as many for code and English.
    """
    return len(text.encode("utf-8", "surrogatepass")) / BYTES


def tokens_of(body: Mapping[str, Any]) -> float:
    """About how many input tokens a request has, by the rule of `tokens`; its schema counts as it does for servers that
    put it into the prompt."""
    schema = json.dumps(body["response_format"], ensure_ascii=False) if "response_format" in body else ""
    return tokens(schema) + sum(MESSAGE_TOKENS + tokens(one["content"]) for one in body["messages"])


def correction(completions: Iterable[Completion]) -> float:
    """By what factor the rule of `tokens` was wrong for logged replies; 1 if too few are counted."""
    counts = [(one.input_tokens, one.expected_input) for one in completions if one.input_tokens and one.expected_input]
    if len(counts) < CALIBRATED:
        return 1.0
    return sum(given for given, _ in counts) / sum(expected for _, expected in counts)


def mean_output(completions: Iterable[Completion]) -> float | None:
    """The mean length of logged replies in tokens; None if too few are counted."""
    counts = [one.output_tokens for one in completions if one.output_tokens is not None]
    return sum(counts) / len(counts) if len(counts) >= CALIBRATED else None


def _count(n: int, one: str, many: str) -> str:
    return f"{n:,} {one if n == 1 else many}"


def _tokens(given: int, taken: int | None) -> str:
    return f"{given:,} input and {'an unknown number of' if taken is None else f'{taken:,}'} output tokens"


def _money(value: float) -> str:
    return f"{value:,.2f}" if value >= 1 else f"{value:.2g}"
