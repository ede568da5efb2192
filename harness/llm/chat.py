"""A client for language models, hosted or local, that speak the API of OpenAI's chat completions.

A thread logs each reply before it sends its next request, so a restart repeats only the requests that were under way.
The log of replies contains no prompts, and other logs contain neither prompts nor replies. The API key is read from the
environment for each request and never stored.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import urlsplit

from harness.errors import BadInput, Failed
from harness.llm import usage
from harness.llm.structured import Schema, WrongReply, json_value, quoted_reply
from harness.llm.usage import Completion, Holding, Price, ReplyLog, Usage, UsageEstimate, tokens_of
from harness.progress import watch
from harness.storage.typed import row_as
from retrievers.base import Turn, encodable
from retrievers.external import http_client
from retrievers.external.http_client import FailedAttempt, HttpClient, HttpReply, HttpRequest, Unanswered
from retrievers.hosts import Address, Secrets, checked_variable
from retrievers.redaction import redacted

__all__ = ["Chat", "ChatModel", "Prompt", "Reply", "Schema", "WrongReply", "json_value"]

REQUEST = {"temperature": 0}
RESERVED = {"model", "messages", "stream", "n", "response_format"}  # fields that the harness sets
ATTEMPTS = 3  # A request is sent at most 3 times to get a usable reply.
USELESS = 10  # If the first 10 replies are unusable, no more requests are sent.
SHORTEST_SECRET = 8  # characters; shorter keys are placeholders for servers that need no key

T = TypeVar("T")
_Asked = tuple["Prompt", dict[str, Any]]  # a prompt and its request


@dataclass(eq=False)
class ChatModel:
    """A language model at an endpoint.

    model: the name of the model; None: asking raises BadInput.
    base_url: an https address, or an http address on this machine, where no key is needed.
    request: further fields of each request; None: `REQUEST`. Fields with the value None are left out.
    replies: how to get structured replies. `json_schema` sends the schema, and the server enforces it. `json_object`
        demands JSON, and `text` demands nothing; both describe the schema in the prompt.
    price: `input` and `output`, in money per million tokens; None: unknown.
    timeout, retries, parallel: see `http_client.Limits`.
    """

    recorded_as = "llm/chat"
    version = 1

    model: str | None = None
    base_url: str = "https://api.openai.com/v1"
    request: dict[str, Any] | None = None
    replies: Literal["json_schema", "json_object", "text"] = "json_schema"
    price: dict[str, Any] | None = None
    api_key_env: str = "OPENAI_API_KEY"
    timeout: http_client.Timeout = 60.0
    retries: http_client.Retries = 4
    parallel: http_client.Parallel = 4

    def __post_init__(self) -> None:
        self._address = _checked_address(self.base_url)
        self.base_url = self._address.url
        self.request = {**checked_request(REQUEST if self.request is None else self.request, "llm.request")}
        self.money = row_as(Price, self.price or {}, "llm.price")
        self._limits = http_client.Limits(self.timeout, self.retries, self.parallel, "llm.runtime")
        variable = checked_variable(self.api_key_env, "llm.runtime.api_key_env")
        self._secrets = Secrets({"Authorization": variable}, "Bearer ")

    @classmethod
    def identify(
        cls, model: str | None, base_url: str, request: dict[str, Any] | None, replies: str, **_: Any
    ) -> dict[str, Any]:
        """Return the arguments that decide the replies: all except the price and the keys under `runtime`."""
        fields = {name: value for name, value in (REQUEST if request is None else request).items() if value is not None}
        return {"model": model, "base_url": base_url.rstrip("/"), "request": fields, "replies": replies}

    def require(self) -> None:
        """Raise BadInput if the model has no name, or if the endpoint needs a key and none is set."""
        if not self.model:
            raise BadInput("llm.model is missing. Give it on the command line: llm.model=NAME")
        if self._secrets.unset() and not self._address.local:
            raise BadInput(
                f"The environment variable {self.api_key_env} holds no key for {self.base_url}. Set it, or name "
                "another variable with llm.runtime.api_key_env. A server on this machine needs no key: "
                "llm.base_url=http://localhost:8000/v1, for example."
            )
        self._secrets.headers()

    def log_identity(self, purpose: str) -> dict[str, Any]:
        """Return what identifies a log of replies. Each purpose, such as "gate", has its own log, so processes with
        different purposes do not wait for each other."""
        return {"model": self.model, "base_url": self.base_url, "purpose": purpose}

    def client(self) -> HttpClient:
        """Return an HTTP client for the endpoint. Raise BadInput as `require` does."""
        self.require()
        return HttpClient(self._address, self._limits, self._secrets, frozenset({400}))

    def body(self, prompt: Prompt) -> dict[str, Any]:
        schema, turns = prompt.schema, list(prompt.turns)
        fields = {**(self.request or {}), **prompt.request}
        if schema and self.replies == "json_schema":
            described = {"name": schema.name, "strict": True, "schema": schema.document}
            fields["response_format"] = {"type": "json_schema", "json_schema": described}
        elif schema:
            turns = _with_schema(turns, schema)
            if self.replies == "json_object":
                fields["response_format"] = {"type": "json_object"}
        messages = [{"role": turn.role, "content": turn.content} for turn in turns]
        given = {name: value for name, value in fields.items() if value is not None}
        return {"model": self.model, "messages": messages, **given}


@dataclass(frozen=True)
class Prompt:
    """A request to a model.

    turns: the messages. A first turn with the role `system` is an instruction.
    schema: the form of a structured reply; None: the reply is plain text.
    request: further fields, such as max_tokens. They override the fields in the config; None leaves a field out.
    name: name of the prompt in error messages, such as "query 'q1'"; it is not sent.
    expects: expected number of tokens in the reply, for estimates; None: unknown.
    """

    turns: tuple[Turn, ...]
    schema: Schema | None = None
    request: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    expects: int | None = None


@dataclass(frozen=True)
class Reply(Generic[T]):
    """A reply. value: what was read from its text; None if the text is unusable. problem: why it is unusable, or ""."""

    value: T | None
    text: str
    problem: str = ""


class Chat:
    """A model and its replies. Cached replies need no key; asking the model without a key raises BadInput.

    replies: folder of the log of replies; None: keep replies only in this object, and print nothing about tokens.
    unasked: the reason not to ask the model, and a remedy; "": the model may be asked.
    turn: see `ReplyLog`.
    """

    def __init__(self, model: ChatModel, replies: Path | None, unasked: str = "", turn: Holding = nullcontext) -> None:
        self._model, self._quiet, self._unasked = model, replies is None, unasked
        self._log = ReplyLog(replies, turn)
        self.spent = Usage(model.money)
        self._counting = threading.Lock()

    def ask(self, prompts: Sequence[Prompt], read: Callable[[str], T], label: str) -> list[Reply[T]]:
        """Return the replies in the order of the prompts. Equal prompts are sent once; logged replies cost nothing.

        After an unusable reply that is neither a refusal nor cut off, send its request again. Send no request more than
        three times. If no reply is usable, return the last one with its problem. Raise Failed if the endpoint does not
        answer or if the first ten replies are unusable. Even then, keep the replies to requests under way.

        read: returns the value of a text, or raises WrongReply. Its result must depend only on the text.
        label: name of the work in progress bars and messages, such as "judging".
        """
        keys, asked = self._requests(prompts)
        self._log.refresh()
        found = self._known(asked, read)
        cached = len(found)
        if cached < len(asked):
            with self._log.adding():
                found = self._known(asked, read)  # another process may have asked meanwhile
                cached = len(found)
                if cached < len(asked):
                    self._complete(asked, found, read, label)
        self.spent = replace(self.spent, cached=self.spent.cached + cached)
        return [found[key] for key in keys]

    def known(self, prompts: Sequence[Prompt], read: Callable[[str], T]) -> list[Reply[T] | None]:
        """Return the cached replies as `ask` would, and None where `ask` would send a request. Send nothing."""
        self._log.refresh()
        return [_judged(self._log[key], read) for key in self._requests(prompts)[0]]

    def estimate(self, prompts: Sequence[Prompt]) -> UsageEstimate:
        """Estimate the requests, tokens and cost of asking. Send nothing."""
        self._log.refresh()
        _, asked = self._requests(prompts)
        return self._estimate(asked, {key for key in asked if self._log[key]})

    def taken(self, prompts: Sequence[Prompt]) -> Usage:
        """Sum the usage of logged replies to these prompts, including unusable ones and those of other processes."""
        found = Usage(self._model.money)
        for key in {*self._requests(prompts)[0]}:
            for completion in self._log[key]:
                found = found.plus(completion)
        return found

    def _estimate(self, asked: Mapping[str, _Asked], cached: Collection[str]) -> UsageEstimate:
        missing = [one for key, one in asked.items() if key not in cached]
        correction, mean = usage.calibration([*self._log.completions()])
        given = round(sum(tokens_of(body) for _, body in missing) * correction)
        expected = [prompt.expects if mean is None else mean for prompt, _ in missing]
        taken = None if None in expected else round(sum(filter(None, expected)))
        return UsageEstimate(len(missing), len(asked) - len(missing), given, taken, self.spent.price.of(given, taken))

    def _requests(self, prompts: Sequence[Prompt]) -> tuple[list[str], dict[str, _Asked]]:
        """Return each prompt's key, and key -> (prompt, request). A key is a sha256 of all that decides the reply."""
        keys, asked = [], {}
        for prompt in prompts:
            body = self._model.body(prompt)
            content = json.dumps({"url": self._url, "body": body}, sort_keys=True, separators=(",", ":"))
            keys.append(hashlib.sha256(content.encode()).hexdigest())
            asked[keys[-1]] = (prompt, body)
        return keys, asked

    @cached_property
    def _client(self) -> HttpClient:
        return self._model.client()

    @property
    def _url(self) -> str:
        return f"{self._model.base_url}/chat/completions"

    def _known(self, keys: Mapping[str, Any], read: Callable[[str], T]) -> dict[str, Reply[T]]:
        judged = ((key, _judged(self._log[key], read)) for key in keys)
        return {key: reply for key, reply in judged if reply is not None}

    def _complete(
        self, asked: Mapping[str, _Asked], found: dict[str, Reply[T]], read: Callable[[str], T], label: str
    ) -> None:
        where, before = f"{self._model.model} at {self._model.base_url}", self.spent
        if self._unasked:
            lacking = f"{len(asked) - len(found)} of {len(asked)} replies from {where} are not cached"
            raise BadInput(f"{label}: {lacking}. {self._unasked}")
        self._model.require()
        self._say(f"{label}: asking {where}: {self._estimate(asked, found.keys()).text()}.")
        try:
            with watch(label) as progress:
                useless = 0
                while missing := [key for key in asked if key not in found]:
                    for key in self._replied(missing, asked):
                        reply = _judged(self._log[key], read)
                        if reply is not None:
                            found[key] = reply
                            progress(len(found), len(asked), "replies")
                        useless += reply is None or bool(reply.problem)
                        if useless == USELESS and all(one.problem for one in found.values()):
                            raise Failed(f"{label}: {self._useless(key, asked[key][0], read)}")
        except Unanswered as error:
            prompt, _ = asked[missing[error.place]]
            kept = f"{len(found)} of {len(asked)} replies are cached. Run again to request only the missing ones."
            raise Failed(
                f"{label}: {prompt.name or 'a prompt'} has no reply from {where}: {error}"
                + ("" if self._quiet else f" {kept}")
            ) from None
        finally:
            if self.spent.requests > before.requests:
                self._say(f"{label}: {self.spent.since(before).text()}.")

    def _replied(self, missing: Sequence[str], asked: Mapping[str, _Asked]) -> Iterator[str]:
        """Send each request once. Yield the key of a request as soon as its reply is in the log."""

        def keep(place: int, reply: HttpReply) -> None:
            completion = _completion(reply, round(tokens_of(asked[missing[place]][1])))
            self._log.add(missing[place], completion)
            with self._counting:
                self.spent = self.spent.plus(completion)

        requests = [HttpRequest(self._url, asked[key][1]) for key in missing]
        for answer in self._client.answers(len(missing), requests.__getitem__, keep):
            yield missing[answer.place]

    def _useless(self, key: str, prompt: Prompt, read: Callable[[str], Any]) -> str:
        why = ""
        try:
            read(self._log[key][-1].text)
        except WrongReply as error:
            why = f" For {prompt.name or 'the last prompt'}: {error}."
        return (
            f"the first {USELESS} replies from {self._model.model} at {self._model.base_url} are all unusable, so no "
            f"more are requested.{why} Try another prompt, another model, or another value of llm.replies."
        )

    def _say(self, line: str) -> None:
        if not self._quiet:
            print(line, file=sys.stderr)  # noqa: T201


def _judged(completions: Sequence[Completion], read: Callable[[str], T]) -> Reply[T] | None:
    """Return the first usable reply, or else the last with its problem; None if the request must be sent (again)."""
    problem = ""
    for one in completions:
        try:
            if one.finish in ("refusal", "content_filter"):
                raise WrongReply(f"the model refuses: {quoted_reply(one.text)}")
            return Reply(read(one.text), one.text)
        except WrongReply as error:
            problem = f"{error}."
            if one.finish == "length":
                problem += f" It was cut off after {one.output_tokens or 'too few'} tokens."
    if not completions or (len(completions) < ATTEMPTS and completions[-1].finish in ("stop", "")):
        return None
    return Reply(None, completions[-1].text, problem)


def _completion(reply: HttpReply, expected_input: int) -> Completion:
    """Return the completion in a reply, or the content filter's refusal. Raise FailedAttempt for anything else."""
    try:
        content = json.loads(reply.text)
        if reply.status == 400:  # A hosted model's content filter refuses the prompt with this status.
            if content["error"]["code"] != "content_filter":
                raise ValueError
            message = {"content": str(content["error"]["message"])}
            content = {"choices": [{"message": message, "finish_reason": "content_filter"}]}
        choice = content["choices"][0]
        message = choice["message"]
        text, refusal = message.get("content") or "", message.get("refusal")
        finish = "refusal" if refusal and not text else choice.get("finish_reason") or ""
        if not isinstance(text, str) or not isinstance(finish, str):
            raise TypeError
        counts = content.get("usage") or {}
        given, taken = counts.get("prompt_tokens"), counts.get("completion_tokens")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        if reply.status == 400:
            raise FailedAttempt(f"HTTP 400: {reply.quoted()}", final=True) from None
        raise FailedAttempt(f"the reply is not a chat completion: {reply.quoted()}") from None
    text = redacted(encodable(text or str(refusal or "")), SHORTEST_SECRET)
    return Completion(text, finish, _tokens(given), _tokens(taken), expected_input)


def _tokens(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else None


def _with_schema(turns: Sequence[Turn], schema: Schema) -> list[Turn]:
    described = (
        "Reply with one JSON object and nothing else. It must keep to this JSON Schema:\n"
        f"{json.dumps(schema.document, ensure_ascii=False)}"
    )
    if turns and turns[0].role == "system":
        return [Turn("system", f"{turns[0].content}\n\n{described}"), *turns[1:]]
    return [Turn("system", described), *turns]


def checked_request(request: Any, key: str) -> dict[str, Any]:
    """Return the fields of a request. Raise BadInput if `RESERVED` has one of them. key: config key of the fields."""
    if not isinstance(request, Mapping):
        raise BadInput(f"{key}={request!r:.60} must be a group of fields, such as {key}.max_tokens=16.")
    if reserved := RESERVED & set(request):
        raise BadInput(f"{key}.{min(reserved)}: the harness sets this field itself. Remove it.")
    return dict(request)


def _checked_address(base_url: str) -> Address:
    """Return the address. Raise BadInput if it is wrong; the message must not show secrets in the address."""
    address = Address.of(base_url.rstrip("/"), "llm.base_url")
    if urlsplit(address.url).query:
        raise BadInput("base_url contains a query (the part after ?), which would be logged with the run. Remove it.")
    if not address.encrypted:
        raise BadInput(
            f"base_url={base_url}: http would send the key and the prompts unencrypted. Use https, or http to this "
            "machine, such as http://localhost:8000/v1. A tunnel from this machine can reach a model elsewhere."
        )
    return address
