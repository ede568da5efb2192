"""A search service as a retriever: each query is one HTTP request with a JSON reply."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

import numpy as np

from harness.errors import BadInput, Failed, did_you_mean
from retrievers.base import DocIds, Document, Progress, Query, Ranking, opened
from retrievers.dense.encoders import Encoder
from retrievers.external.http_client import (
    FailedAttempt,
    HttpClient,
    HttpReply,
    HttpRequest,
    Limits,
    Parallel,
    Retries,
    Timeout,
    Unanswered,
)
from retrievers.hosts import Address, Secrets, checked_variable
from retrievers.redaction import shown_value

NAMES = ("query", "quoted_query", "k", "vector")
_NAMED = re.compile(r"\{(" + "|".join(NAMES) + r")\}")
_STEP = re.compile(
    r"""(?:^|\.)(?P<name>[^.\[\]'"\s?*]+)(?P<optional>\??)"""
    r"""|\['(?P<quoted>[^']+)'\](?P<also_optional>\??)"""
    r"""|\[(?P<index>\d{1,6}|\*)\]"""
)
_SECRET = re.compile("key|token|secret|passw|credential|signature", re.IGNORECASE)  # found in names of secrets
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a valid name of a header (RFC 9110, 5.6.2)


class HttpRetriever:
    """Ranks by a search service that answers each query with ids, and usually scores, in JSON.

    In url and body, {query} stands for the text of the query, {quoted_query} for the text as a JSON string, {k} for the
    number of documents, and {vector} for the query's vector.

    url: https, or http if the service is on this machine or no headers are sent. It is logged: put no secret into it.
    ids: path of the ids in the reply, such as hits.hits[*]._id; they must be ids of the corpus.
    scores: path of the scores, where higher is better; None: 1/rank in the order of the reply.
    body: a value to send as JSON; None: no body.
    repeats: if an id occurs twice, `refuse` raises an error, and `best` keeps the document's best result.
    version: stands for the service's content and ranking; change it when these change, since results are cached.
    encoder: the encoder that computes {vector}.
    cache: whether later runs may reuse the results.
    headers_env: header -> environment variable with the header's whole value, such as `ApiKey ...`.
    timeout, retries, parallel: as in `http_client.Limits`.
    """

    recorded_as = "retriever/http"
    version = 1  # version of this class; the argument `version` is the version of the service
    times_itself = True

    def __init__(
        self,
        url: str,
        ids: str,
        scores: str | None = None,
        *,
        body: dict[str, Any] | None = None,
        method: Literal["POST", "GET"] = "POST",
        repeats: Literal["refuse", "best"] = "refuse",
        version: str = "1",
        encoder: Encoder | None = None,
        cache: bool = True,
        headers_env: dict[str, str] | None = None,
        timeout: Timeout = 30.0,
        retries: Retries = 4,
        parallel: Parallel = 4,
    ) -> None:
        self.progress: Progress | None = None
        self._url, self._body, self._method = url, body, method
        self._ids_at = JsonPath.parse(ids, "ids")
        self._scores_at = None if scores is None else JsonPath.parse(scores, "scores")
        self._repeats, self._names = repeats, names_in([url, body])
        self._encoder = encoder
        address = Address.of(url, "url")
        _check_request(address, method, body, self._names, encoder)
        secrets = _checked_headers(headers_env or {}, address)
        self._client = HttpClient(address, Limits(timeout, retries, parallel), secrets)
        self._doc_ids: DocIds | None = None

    @classmethod
    def identify(cls, **arguments: Any) -> dict[str, Any]:
        decides = ("url", "ids", "scores", "body", "method", "repeats", "version", "encoder")
        return {name: arguments[name] for name in decides}

    def require_model(self) -> None:
        if unset := self._client.secrets.unset():
            headers = {variable: header for header, variable in self._client.secrets.variables.items()}
            raise BadInput(
                f"The environment variable {unset[0]} is not set. Set it to the whole value of the header "
                f"{headers[unset[0]]}, as runtime.headers_env expects."
            )

    def index(self, documents: Sequence[Document], folder: Path) -> None:
        DocIds.save(folder, documents)
        self.load(folder)

    def load(self, folder: Path) -> None:
        self._doc_ids = ids = DocIds(folder)
        self._folder, self._known = folder, frozenset(ids[np.arange(len(ids))])

    def search(self, queries: Sequence[Query], k: int) -> Ranking:
        """Return at most k documents per query, and measure the latency. Raise Failed if a query gets no answer."""
        opened(self._doc_ids, k)
        asked = [query for query in queries if query.text.strip()] if k else []
        rows: dict[str, dict[str, float]] = {query.query_id: {} for query in queries}
        seconds, ascending = [], []
        request = self._requests(asked, k)
        try:
            for answer in self._client.answers(len(asked), request, lambda _, reply: self._read(reply, k)):
                rows[asked[answer.place].query_id], ascends = answer.value
                seconds.append(answer.seconds)
                ascending.append(ascends)
                if self.progress:
                    self.progress(len(seconds), len(asked), "queries")
        except Unanswered as error:
            query_id = asked[error.place].query_id
            raise Failed(f"Query {query_id!r} has no result from {self._url}: {error}") from None
        known = [one for one in ascending if one is not None]
        if len(known) > 1 and all(known):
            raise Failed(
                f"The scores from {self._url} rise from the first result to the last: they seem to be distances, where "
                "less is better. Set scores=null to take the results in the order of the reply."
            )
        return replace(Ranking.from_scores(rows, k), measured=_latency(seconds))

    def _requests(self, queries: Sequence[Query], k: int) -> Callable[[int], HttpRequest]:
        if queries:
            self.require_model()
        vectors: Any = None
        if self._encoder and queries:
            vectors = self._encoder.encode_queries([query.text for query in queries], self._folder, self.progress)

        def request(place: int) -> HttpRequest:
            text = queries[place].text
            values = {"query": text, "quoted_query": json.dumps(text), "k": k}
            if vectors is not None:
                values["vector"] = vectors[place].tolist()
            return HttpRequest(fill_address(self._url, values), fill_template(self._body, values), self._method)

        return request

    def _read(self, reply: HttpReply, k: int) -> tuple[dict[str, float], bool | None]:
        """Return doc_id -> score, and whether scores ascend (None: all equal). Raise FailedAttempt for a bad reply."""
        ids, scores = self._pairs(reply)
        found: dict[str, float] = {}
        for doc_id, score in zip(ids, scores, strict=True):
            if doc_id in found and self._repeats == "refuse":
                raise _final(
                    f"the result {shown_value(doc_id)} occurs twice. If the results are parts of documents, set "
                    "repeats=best."
                )
            if doc_id not in self._known:
                raise _final(
                    f"the result {shown_value(doc_id)} is not one of the {len(self._known):,} documents of the corpus. "
                    f"Does ids={self._ids_at.text} lead to the corpus's ids, and does the service hold this corpus?"
                )
            found[doc_id] = max(score, found.get(doc_id, score))
        if "k" in self._names and len(ids) > k:
            raise _final(f"it returns {len(ids)} results instead of {k}. Check where {{k}} is used.")
        return found, None if len(set(scores)) < 2 else scores == sorted(scores)

    def _pairs(self, reply: HttpReply) -> tuple[list[str], list[float]]:
        content = reply.json()
        ids = [_checked_id(value, self._ids_at) for value in _values(self._ids_at, "ids", content, reply)]
        if self._scores_at is None:
            return ids, [1 / rank for rank in range(1, len(ids) + 1)]
        scores = [_checked_score(value) for value in _values(self._scores_at, "scores", content, reply)]
        if len(ids) != len(scores):
            raise _final(f"`ids` leads to {len(ids)} values, but `scores` leads to {len(scores)}: results need both.")
        return ids, scores


def _final(reason: str) -> FailedAttempt:
    return FailedAttempt(reason, final=True)


def _values(place: JsonPath, key: str, content: Any, reply: HttpReply) -> list[Any]:
    try:
        return place.values(content)
    except Missing as error:
        raise _final(f"{key}={place.text} leads nowhere: {error} The reply: {reply.quoted()}") from None


def _checked_id(value: Any, place: JsonPath) -> str:
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise _final(f"the id {shown_value(value)} is neither text nor a whole number. Check ids={place.text}.")


def _checked_score(value: Any) -> float:
    try:
        score = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        raise _final(f"the score {shown_value(value)} is not a finite number.")
    return score


def _latency(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {}
    p50, p95 = np.percentile(1000 * np.array(seconds), [50, 95]).tolist()
    return {"latency_p50_ms": p50, "latency_p95_ms": p95}


def _check_request(
    address: Address, method: str, body: dict[str, Any] | None, names: set[str], encoder: Encoder | None
) -> None:
    parts = urlsplit(address.url)
    if re.search("[{}]", parts.netloc):
        raise BadInput("url has braces in its host. Only its path and its parameters may vary.")
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if _SECRET.search(name) and not names_in([value]):
            raise BadInput(
                f"url has the parameter {name}, which looks like a secret and would be logged with the run. Send it in "
                "a header: set runtime.headers_env."
            )
    if body is not None and (method == "GET" or not isinstance(body, Mapping)):
        raise BadInput("body must be a group of fields. A GET has no body: put {query} into url, or use method=POST.")
    if not names & {"query", "quoted_query", "vector"}:
        raise BadInput("Neither url nor body has {query} or {vector}, so every query would get the same results.")
    if ("vector" in names) != (encoder is not None):
        raise BadInput(
            "{vector} needs an encoder: set encoder to ${encoder}, the run's encoder, as in conf/retriever/qdrant.yaml."
            if encoder is None
            else "encoder is given, but neither url nor body has {vector}. Set encoder to null."
        )
    if getattr(encoder, "learns", False):
        raise BadInput("This encoder learns from the documents, so no service can hold its vectors. Choose another.")


def _checked_headers(variables: Mapping[str, str], address: Address) -> Secrets:
    for header, variable in variables.items():
        if not isinstance(header, str) or not _HEADER.fullmatch(header):
            raise BadInput(f"headers_env: {header!r:.60} is not the name of a header, such as Authorization.")
        checked_variable(str(variable), f"headers_env.{header}")
    if variables and not address.encrypted:
        raise BadInput(
            f"url={address.url}: http would send the headers unencrypted. Use https; http is only for this machine "
            "(or a tunnel that ends there)."
        )
    return Secrets(dict(variables))


def names_in(template: Any) -> set[str]:
    """Return the names in a template's braces. Raise BadInput if a whole text is one unknown name in braces."""
    found = set()
    for text in _texts(template):
        found |= set(_NAMED.findall(text))
        whole = re.fullmatch(r"\{(\w+)\}", text)
        if whole and whole[1] not in NAMES:
            known = ", ".join(f"{{{name}}}" for name in NAMES)
            raise BadInput(f"body has {text}, which stands for nothing.{did_you_mean(whole[1], NAMES)} Known: {known}.")
    return found


def fill_template(template: Any, values: Mapping[str, Any]) -> Any:
    """Replace names in braces by values. A text that is only {name} becomes the value itself, such as a number."""
    if isinstance(template, Mapping):
        return {key: fill_template(value, values) for key, value in template.items()}
    if isinstance(template, Sequence) and not isinstance(template, str):
        return [fill_template(value, values) for value in template]
    if not isinstance(template, str):
        return template
    if whole := _NAMED.fullmatch(template):
        return values[whole[1]]
    return _NAMED.sub(lambda name: _as_text(values[name[1]]), template)


def fill_address(template: str, values: Mapping[str, Any]) -> str:
    return _NAMED.sub(lambda name: quote(_as_text(values[name[1]]), safe="", errors="replace"), template)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _texts(template: Any) -> Iterator[str]:
    if isinstance(template, str):
        yield template
    elif isinstance(template, Mapping | list | tuple):
        for inner in template.values() if isinstance(template, Mapping) else template:
            yield from _texts(inner)


class Missing(LookupError):
    """A path leads to no value in a reply. The message says where in the reply the path fails."""


class _Step(NamedTuple):
    """key: a name in an object, or an index in a list; None: all elements. optional: whether the name may be absent."""

    key: str | int | None
    optional: bool = False

    def of(self, value: Any, path: str) -> Iterator[tuple[Any, str]]:
        where = path or "the reply"
        if isinstance(self.key, str):
            names = value if isinstance(value, dict) else {}
            if names.get(self.key) is not None:
                yield names[self.key], f"{path}.{self.key}".lstrip(".")
            elif not (self.optional and isinstance(value, dict)):
                hint = did_you_mean(self.key, [name for name in names if name != self.key])
                raise Missing(f"{where} has no {self.key!r}.{hint}")
        elif not isinstance(value, list):
            raise Missing(f"{where} is not a list.")
        elif self.key is not None and self.key >= len(value):
            raise Missing(f"{where} has no element {self.key}.")
        else:
            for i in range(len(value)) if self.key is None else [self.key]:
                yield value[i], f"{path}[{i}]"


@dataclass(frozen=True)
class JsonPath:
    """A path as in JSONPath: `hits[*].id`, `hits[*]['a.b']`. With `children?[*].id`, a reply may lack `children`."""

    text: str
    steps: tuple[_Step, ...]

    @classmethod
    def parse(cls, text: str, key: str) -> JsonPath:
        """Parse a path. If the path is invalid, raise BadInput, which names its config key, `key`."""
        path = text.removeprefix("$").removeprefix(".")
        steps: list[_Step] = []
        end = 0
        while step := _STEP.match(path, end):
            end = step.end()
            name, index = step["name"] or step["quoted"], step["index"]
            optional = bool(step["optional"] or step["also_optional"])
            steps.append(_Step(name or (None if index == "*" else int(index)), optional))
        if end < len(path) or not any(step.key is None for step in steps):
            raise BadInput(
                f"{key}={text!r} is not a path to a value for each result. Write the names on the way to it, with [*] "
                "for every element of a list, such as hits.hits[*]._id."
            )
        return cls(text, tuple(steps))

    def values(self, content: Any) -> list[Any]:
        """Return the values at the path, in the order of the reply. Raise Missing if the path leads nowhere."""
        found = [(content, "")]
        for step in self.steps:
            found = [inner for value, path in found for inner in step.of(value, path)]
        return [value for value, _ in found]
