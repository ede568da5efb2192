"""A search service as a retriever: each query is one HTTP request, and its JSON reply names the documents."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

import numpy as np

from retrievers.base import BadInput, DocIds, Document, Failed, Progress, Query, Ranking
from retrievers.dense.encoders import Encoder
from retrievers.external.http_client import (
    Address,
    HttpClient,
    Limits,
    NoAnswer,
    Parallel,
    Reply,
    Request,
    Retries,
    Secrets,
    Timeout,
    Unanswered,
    checked_variable,
)
from retrievers.external.json_shapes import Missing, Place, filled, filled_address, names_in
from retrievers.external.quoting import shown

_SECRET = re.compile("key|token|secret|passw|credential|signature", re.IGNORECASE)  # in names of parameters
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2


class HttpRetriever:
    """Ranks as a search service does that answers each query with ids, and mostly scores, in JSON.

    In url and body, {query} stands for the text of the query, {quoted_query} for the same as a JSON string, {k} for
    the number of documents and {vector} for the query's vector.

    url:      of the service. https, unless it is on this machine or gets no headers. It is logged: no secret in it.
    ids:      place of the ids in the reply, such as hits.hits[*]._id; they must be those of the corpus.
    scores:   place of the scores, higher is better; None: the reply has the best first, and its ranks give 1/rank.
    body:     sent as JSON; None: nothing.
    method:   POST or GET.
    repeats:  what several results with the same id are: `refuse`: a mistake; `best`: parts of a document, which the
        best of them stands for.
    version:  of what the service holds and does, under which results are cached: change it whenever that has changed.
    encoder:  makes the vectors for {vector}.
    cache:    whether later runs may use the results again.
    headers_env: header -> environment variable that holds its whole value, such as `ApiKey ...`.
    timeout, retries, parallel: as in `http_client.Limits`.
    """

    recorded_as = "retriever/http"
    version = 1  # of this class; that of the service is an argument
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
        self._shape = _ReplyShape(
            Place.parse(ids, "ids"), None if scores is None else Place.parse(scores, "scores"), repeats == "best"
        )
        self._names = names_in([url, body])
        self._encoder = encoder
        address = Address.of(url, "url")
        _check_request(address, method, body, self._names, encoder)
        secrets = _checked_headers(headers_env or {}, address)
        self._client = HttpClient(address, Limits(timeout, retries, parallel), secrets)
        self._folder: Path | None = None

    @classmethod
    def identify(cls, **arguments: Any) -> dict[str, Any]:
        """What decides the results: the request, where its reply has them, and the declared version."""
        decides = ("url", "ids", "scores", "body", "method", "repeats", "version", "encoder")
        return {name: arguments[name] for name in decides}

    def require_model(self) -> None:
        """BadInput where an environment variable is unset, so that a run is refused before it begins."""
        if unset := self._client.secrets.unset():
            headers = {variable: header for header, variable in self._client.secrets.variables.items()}
            raise BadInput(
                f"The environment variable {unset[0]} is not set, which runtime.headers_env names for the header "
                f"{headers[unset[0]]}. Set it to the header's whole value."
            )

    def index(self, documents: Sequence[Document], folder: Path) -> None:
        """Keep the ids of `documents` (ascending, else ValueError): the service has an index of its own."""
        DocIds.save(folder, documents)
        self.load(folder)

    def load(self, folder: Path) -> None:
        """Read the ids in `folder`."""
        ids = DocIds(folder)
        self._folder, self._known = folder, frozenset(ids[np.arange(len(ids))])

    def search(self, queries: Sequence[Query], k: int) -> Ranking:
        """At most k >= 0 documents per query; none for a query without text. Failed where a query gets no result.

        `measured` has the median and the 95th percentile of the requests' times in milliseconds, without retries.
        """
        if self._folder is None:
            raise RuntimeError("HttpRetriever.search needs index or load first")
        if k < 0:
            raise BadInput(f"k is {k}: give the number of documents to return, at least 0.")
        asked = [query for query in queries if query.text.strip()] if k else []
        rows: dict[str, dict[str, float]] = {query.query_id: {} for query in queries}
        seconds, backwards = [], []
        request = self._requests(asked, k)
        try:
            for answer in self._client.answers(len(asked), request, lambda _, reply: self._read(reply, k)):
                rows[asked[answer.place].query_id] = answer.value.scores
                seconds.append(answer.seconds)
                backwards.append(answer.value.ascends)
                if self.progress:
                    self.progress(len(seconds), len(asked), "queries")
        except Unanswered as error:
            query_id = asked[error.place].query_id
            raise Failed(f"Query {query_id!r} has no result from {self._url}: {error}") from None
        _check_direction(backwards, self._url)
        return replace(Ranking.from_scores(rows, k), measured=_latency(seconds))

    def _requests(self, queries: Sequence[Query], k: int) -> Callable[[int], Request]:
        """A function from the number of a query to its request."""
        if queries:
            self.require_model()
        vectors: Any = None
        if "vector" in self._names and queries:
            assert self._encoder is not None
            assert self._folder is not None
            vectors = self._encoder.encode_queries([query.text for query in queries], self._folder, self.progress)

        def request(place: int) -> Request:
            text = queries[place].text
            values = {"query": text, "quoted_query": json.dumps(text), "k": k}
            if vectors is not None:
                values["vector"] = vectors[place].tolist()
            return Request(filled_address(self._url, values), filled(self._body, values), self._method)

        return request

    def _read(self, reply: Reply, k: int) -> _Row:
        row = self._shape.row(reply)
        for doc_id in row.scores:
            if doc_id not in self._known:
                raise NoAnswer(
                    f"the result {shown(doc_id)} is none of the {len(self._known):,} documents of the corpus. Does "
                    f"ids={self._shape.ids.text} lead to the corpus's ids, and does the service hold this corpus?",
                    final=True,
                )
        if "k" in self._names and row.results > k:
            raise NoAnswer(f"it returns {row.results} results instead of {k}. Check the place of {{k}}.", final=True)
        return row


@dataclass(frozen=True)
class _Row:
    """The results for one query. scores: by id. results: how many the reply has. ascends: whether their scores do."""

    scores: dict[str, float]
    results: int
    ascends: bool | None  # None: all are equal


@dataclass(frozen=True)
class _ReplyShape:
    """Where a reply has its results. best: whether the best of several with one id counts, or they are a mistake."""

    ids: Place
    scores: Place | None
    best: bool

    def row(self, reply: Reply) -> _Row:
        """The results in a reply; NoAnswer for good where it has not the shape."""
        content = reply.json()
        ids = [_checked_id(value, self.ids) for value in _values(self.ids, "ids", content, reply)]
        if self.scores is None:
            scores = [1 / rank for rank in range(1, len(ids) + 1)]
        else:
            scores = [_checked_score(value) for value in _values(self.scores, "scores", content, reply)]
        if len(ids) != len(scores):
            raise NoAnswer(
                f"ids leads to {len(ids)} values and scores to {len(scores)}: each result needs both.", final=True
            )
        found: dict[str, float] = {}
        for doc_id, score in zip(ids, scores, strict=True):
            if doc_id in found and not self.best:
                raise NoAnswer(
                    f"the result {shown(doc_id)} occurs twice. If the results are parts of documents, set "
                    "repeats=best.",
                    final=True,
                )
            found[doc_id] = max(score, found.get(doc_id, score))
        return _Row(found, len(ids), None if len(set(scores)) < 2 else scores == sorted(scores))


def _values(place: Place, key: str, content: Any, reply: Reply) -> list[Any]:
    try:
        return place.values(content)
    except Missing as error:
        raise NoAnswer(f"{key}={place.text} leads nowhere: {error} The reply: {reply.quoted()}", final=True) from None


def _checked_id(value: Any, place: Place) -> str:
    """The id as text; services may hold whole numbers."""
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise NoAnswer(f"the id {shown(value)} is neither text nor a whole number. Check ids={place.text}.", final=True)


def _checked_score(value: Any) -> float:
    """The score as a number; some services write it as text."""
    try:
        score = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        score = math.nan
    if not math.isfinite(score):
        raise NoAnswer(f"the score {shown(value)} is not a finite number.", final=True)
    return score


def _check_direction(ascends: Sequence[bool | None], url: str) -> None:
    """Failed where every reply lists its results from the lowest score to the highest: those are distances."""
    known = [one for one in ascends if one is not None]
    if len(known) > 1 and all(known):
        raise Failed(
            f"The scores from {url} rise from the first result to the last: they seem to be distances, where less is "
            "better. Set scores=null to take the results in the order of the reply."
        )


def _latency(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {}
    p50, p95 = np.percentile(1000 * np.array(seconds), [50, 95]).tolist()
    return {"latency_p50_ms": p50, "latency_p95_ms": p95}


def _check_request(
    address: Address, method: str, body: dict[str, Any] | None, names: set[str], encoder: Encoder | None
) -> None:
    """BadInput for a request that cannot work or would log a secret."""
    parts = urlsplit(address.url)
    if re.search("[{}]", parts.netloc):
        raise BadInput("url has braces in its host. Only its path and its parameters may vary.")
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if _SECRET.search(name) and not names_in([value]):
            raise BadInput(
                f"url has the parameter {name}, which looks like a secret and would be logged with the run. Send it in "
                "a header: runtime.headers_env."
            )
    if body is not None and (method == "GET" or not isinstance(body, Mapping)):
        raise BadInput("body must be a group of fields, and a GET has none: put {query} into url, or use method=POST.")
    if not names & {"query", "quoted_query", "vector"}:
        raise BadInput("Neither url nor body has {query} or {vector}, so every query would get the same results.")
    if ("vector" in names) != (encoder is not None):
        raise BadInput(
            "{vector} needs an encoder: set encoder to the run's, ${encoder}, as conf/retriever/qdrant.yaml does."
            if encoder is None
            else "encoder is given, but neither url nor body has {vector}. Set encoder to null."
        )
    if getattr(encoder, "learns", False):
        raise BadInput("This encoder learns from the documents, so no service can hold its vectors. Choose another.")


def _checked_headers(variables: Mapping[str, str], address: Address) -> Secrets:
    """BadInput for headers that are no names, and for a way on which others could read them."""
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
