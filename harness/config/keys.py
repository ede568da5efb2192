"""The plain keys of all configs, the values that each accepts, and the check of a value."""

from __future__ import annotations

import inspect
import math
import types
import typing
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from retrievers.base import BadInput, did_you_mean


@dataclass(frozen=True)
class Key:
    """The values that a plain config key accepts: a type and, for numbers, the least and the greatest.

    most: of a text, its greatest length. why: what is wrong with a value beyond `most`.
    lines: whether a text may have line breaks and tabs.
    """

    hint: Any
    least: float | None = None
    most: float | None = None
    why: str = ""
    lines: bool = False


NAME = Key(str, most=250, why="MLflow keeps no longer names")


RANKING = ("advise", "board", "compare", "export", "power", "reproduce", "testset_pool")  # commands that rank runs
KEYS: dict[str, Key] = {
    "outputs": Key(str),
    "format": Key(Literal["text", "json"]),
    "experiment_name": NAME,
    "runs.experiment_name": replace(NAME, hint=str | None),
    "runs.format": Key(Literal["text", "json", "markdown"]),
    **{
        f"{command}.format": Key(Literal["text", "json", "markdown", "latex", "csv"])
        for command in ("board", "compare", "export_history", "power")
    },
    "runs.top": Key(int, 1, 1_000_000, "nobody reads as many lines"),
    "run_name": replace(NAME, hint=str | None),
    "top_k": Key(int, 1, 100_000, "no ranking is as long"),
    "depth": Key(int, 1, 100_000, "each query keeps as many scores in memory"),
    "metrics": Key(list[str] | None),
    "objective": Key(str),
    "public": Key(float, least=0, most=1),
    "seed": Key(int, 0, 2**32 - 1, "random generators take 32 bits"),
    "select_on": Key(Literal["all", "public"]),
    **{f"{command}.select_on": Key(Literal["all", "public"] | None) for command in RANKING},
    **{f"{command}.metric": Key(str | None) for command in RANKING},
    "advise.top": Key(int, 1, 100, "nobody tries as many"),
    "runs": Key(list[str] | None),
    "top": Key(int, least=2, most=26),
    "power": Key(float, 0.5, 0.99, "no test finds everything"),
    "alpha": Key(float, 0.001, 0.2, "as much is found where nothing is"),
    "fail_if": Key(Literal["worse"] | None),
    "pairs": Key(Literal["best", "all"]),
    "resamples": Key(int, 100, 1_000_000, "intervals no longer change"),
    "missing": Key(Literal["skip", "zero"]),
    **dict.fromkeys(["predictions", "references"], Key(str | None)),
    "score.predictions": Key(str),
    "metric": Key(str),
    "run": Key(str | None),
    "submission": Key(str | None),
    "against": Key(str | None),
    "host": Key(str),
    "port": Key(int, least=1, most=65535),
    "query.text": Key(Literal["user_turns", "last", "file", "rewrite", "expand"]),
    **dict.fromkeys(["query.file", "query.prompt"], Key(str | None)),
    "store.path": Key(str),
    "sort": Key(Literal["size", "age"]),
    "show": Key(int, 1, 1_000_000, "nobody reads as many lines"),
    "prune.unused_days": Key(float | None, 0, 36_500, "that is a century"),
    "prune.keep_gb": Key(float | None, 0, 1e6, "that is a petabyte"),
    "query": Key(str, lines=True),
    "dry_run": Key(bool),
    "objectives": Key(list[str] | None),
    "budget": Key(str | None),
    "trace": Key(Literal["none", "errors", "all"]),
    "sweep.trace": Key(Literal["none"]),
    "verify_only": Key(bool),
    "fresh": Key(bool),
    **{
        f"data.{name}": Key(str | None) for name in ("path", "documents", "queries", "qrels", "corpus", "qa", "testset")
    },
    "data.files": Key(list[str] | str | None),
    "model": Key(bool),
    **dict.fromkeys(["allow", "plugins.allow"], Key(list[str])),
    "model_name": replace(NAME, hint=str | None),
    "open": Key(bool),
    **dict.fromkeys(
        ["export_record.public", "export_record.private"], Key(float | None, -1e9, 1e9, "no measure is as large")
    ),
    "files": Key(str | list[str] | None),
    **dict.fromkeys(["prepare.output", "board.output"], Key(str)),
    "unreadable": Key(Literal["stop", "skip"]),
    "chunk.splitter": Key(Literal["regex", "kiwi"]),
    "chunk.separator": Key(str),
    "chunk.size": Key(int, 1, 1_000_000, "nobody reads as long a passage"),
    "chunk.overlap": Key(int, 0, 1_000_000, "nobody reads as long a passage"),
    "chunk.unit": Key(Literal["characters", "morphemes", "tokens"]),
    **dict.fromkeys(["chunk.tokenizer", "chunk.note"], Key(str | None)),
    "scale": Key(Literal["fraction", "percent"]),
    **dict.fromkeys(["testset", "documents"], Key(str)),
    "testset_pool.documents": Key(str | None),
    "testset_pool.top": Key(int, 1, 100, "nobody judges as much"),
    "pool.depth": Key(int, 1, 1000, "nobody judges as much"),
    "pool.sample": Key(int, 0, 1000, "nobody judges as much"),
    **dict.fromkeys(["testset_draft.model", "testset_judge.model", "testset_judge.documents"], Key(str | None)),
    "judge.controls": Key(int, 0, 10_000, "they cost three requests each"),
    "prompt": Key(str | None),
    "testset_review.documents": Key(str | None),
    "reviewer": Key(str | list[str] | None),
    "testset_review.sample": Key(Literal["audit", "repair", "all", "open"]),
    "audit.queries": Key(int, 1, 1_000_000, "nobody checks as many"),
    "audit.seed": Key(int, 0, 2**32 - 1, "random generators take 32 bits"),
    "via": Key(Literal["page", "xlsx"]),
    **dict.fromkeys(["testset_review.output", "from"], Key(str | None)),
    **dict.fromkeys(["testset_freeze.documents", "testset_freeze.output"], Key(str | None)),
    "version": Key(int, 1, 1_000_000, "nobody freezes as often"),
    "relevant_from": Key(int, 1, 3),
    "leave_out": Key(bool),
    "formats": Key(list[str]),
    "limit": Key(int | None, 1, 10_000_000, "no model is asked as often"),
    "easiness": Key(bool),
    "questions": Key(int, 1, 50, "one reply has no room for more"),
    "kinds": Key(list[str]),
    "language": Key(Literal["auto", "ko", "en"]),
    **dict.fromkeys(["filters.copied", "filters.duplicate"], Key(float, 0, 1, "it is a share")),
    "examples": Key(str | None),
    **{f"prompts.{kind}": Key(str | None) for kind in ("fact", "search", "conversation", "none", "unanswerable")},
}

_ASKING = (
    "model",
    "base_url",
    "request.temperature",
    *(f"runtime.{name}" for name in ("api_key_env", "timeout", "retries", "parallel")),
)
MOVED = {f"gate.{name}": f"llm.{name}" for name in _ASKING}  # keys of earlier versions -> what they are now


def moved(key: str) -> str:
    """What has become of a key of an earlier version, as a sentence after a space; empty for other keys."""
    return f" It is {MOVED[key]} now." if key in MOVED else ""


def check_value(value: Any, key: Key, name: str) -> None:
    """Raise BadInput unless `value` has the key's type and lies in its range."""
    if value == "???":
        raise BadInput(f"{name} is missing. Give it on the command line: {name}=...")
    if value == "":
        raise BadInput(f"{name} is empty. Give it a value, or leave it out.")
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput(f"{name}={value} is not a finite number.")
    if not _fits(value, key.hint):
        choices = [c for c in _choices(key.hint) if c is not None]
        expected = f"one of {', '.join(map(str, choices))}" if choices else _type_text(key.hint)
        shown = _number(value) if isinstance(value, int) else f"{value!r:.200}"
        near = did_you_mean(value, map(str, choices)) if isinstance(value, str) else ""
        raise BadInput(f"{name}={shown} is not {expected}.{near}")
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, str):
            _check_text(one, key, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if key.least is not None and value < key.least:
        raise BadInput(f"{name}={_number(value)} is too small: the least is {_number(key.least)}.")
    if key.most is not None and value > key.most:
        why = f" ({key.why})" if key.why else ""
        raise BadInput(f"{name}={_number(value)} is too large: the most is {_number(key.most)}{why}.")


def _check_text(text: str, key: Key, name: str) -> None:
    """BadInput for what no file, page or terminal can show: half characters and control characters."""
    for letter in text:
        kind = unicodedata.category(letter)
        if kind == "Cs" or (kind == "Cc" and not (key.lines and letter in "\n\r\t")):
            what = "bytes that are not UTF-8" if kind == "Cs" else f"the control character {letter!r}"
            raise BadInput(f"{name}={text!r:.60} contains {what}. Leave it out.")
    if key.most is not None and len(text) > key.most:
        raise BadInput(f"{name} has {len(text):,} characters: the most is {_number(key.most)} ({key.why}).")


def _number(value: float) -> str:
    """A number for people: Python writes no whole number of thousands of digits."""
    return f"{value}" if abs(value) < 10**30 else f"{'-' if value < 0 else ''}(more than 10^30)"


def _fits(value: Any, hint: Any) -> bool:
    """Whether a plain value (JSON types) has the hinted type; any value fits a hint that is not a JSON type."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return value in inner and not isinstance(value, bool)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if hint is None or hint is type(None):
        return value is None
    if hint is bool:
        return isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if hint is str:
        return isinstance(value, str)
    if origin in (list, tuple) or (inspect.isclass(origin) and issubclass(origin, typing.Sequence)):
        return isinstance(value, list) and all(_fits(one, inner[0]) for one in value)
    if _is_mapping(hint):
        return isinstance(value, Mapping)  # its values are checked by whoever takes it
    return True


def one_spelling(value: Any, hint: Any) -> Any:
    """A value that fits a hint, in the one spelling that such values have: 1 is 1.0 where a float is expected."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    for one in typing.get_args(hint) if union else (hint,):
        inner = typing.get_args(one)
        if one is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value) + 0.0  # which makes 0.0 of -0.0
        if isinstance(value, Mapping) and _is_mapping(one) and inner:
            return {key: one_spelling(item, inner[1]) for key, item in value.items()}
        if isinstance(value, list) and inner and _fits(value, one):
            return [one_spelling(item, inner[0]) for item in value]
    return value


def _is_mapping(hint: Any) -> bool:
    origin = typing.get_origin(hint)
    return inspect.isclass(origin) and issubclass(origin, Mapping)


def _choices(hint: Any) -> list[Any]:
    if typing.get_origin(hint) is Literal:
        return list(typing.get_args(hint))
    return [c for one in typing.get_args(hint) for c in _choices(one)]


def _type_text(hint: Any) -> str:
    names = {int: "a whole number", float: "a finite number", str: "text", bool: "true or false", type(None): "null"}
    if hint in names:
        return names[hint]
    if _is_mapping(hint):
        return "a group of keys"
    inner = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_type_text(one) for one in inner)
    return f"a list of {_type_text(inner[0])}" if inner else str(hint)
