"""Dataclasses as JSON and back: every kind of field, what does not fit it, and every kind of value."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from harness.errors import BadInput
from harness.storage.typed import HIDDEN, INLINE, OPTIONAL, encoded, key_named, require_path, row_as


@dataclass(frozen=True)
class Part:
    value: float

    def __post_init__(self):
        if self.value < 0:
            raise ValueError("value is below 0.")


@dataclass(frozen=True)
class Whole:
    text: str
    flag: bool = False
    count: int | None = None
    kind: Literal["a", "b", 1] = "a"
    places: Sequence[int] = ()
    parts: Mapping[str, Part] = field(default_factory=dict)
    part: Part | None = None
    anything: Any = None


WHOLE = Whole("달", True, 3, 1, (1, 2), {"x": Part(1.5)}, Part(2.0), [{"y": None}])


def test_a_dataclass_comes_back():
    plain = {"text": "달", "flag": True, "count": 3, "kind": 1, "places": [1, 2], "parts": {"x": {"value": 1.5}},
             "part": {"value": 2.0}, "anything": [{"y": None}]}  # fmt: skip
    assert row_as(Whole, plain, "f:1") == WHOLE
    assert encoded(WHOLE) == plain


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ([], "the row is [], but must be an object."),
        ({}, "text is missing."),
        ({"flag": 1}, "flag is 1, but must be true or false."),
        ({"count": True}, "count is True, but must be a whole number or null."),
        ({"count": 2**63}, "count is 9223372036854775808, but must be a whole number or null."),
        ({"kind": True}, "kind is True, but must be a, b or 1."),
        ({"places": ["x"]}, "places[0] is 'x', but must be a whole number."),
        ({"parts": []}, "parts is [], but must be an object."),
        ({"parts": {"x": {"value": "y"}}}, "parts.x.value is 'y', but must be a number."),
        ({"part": 3}, "part is 3, but must be an object."),
        ({"part": {}}, "part.value is missing."),
        ({"part": {"value": -1}}, "value is below 0."),
        ({"other": 1}, "other is not a field here. The fields are text, flag,"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(change, message):
    row = {"text": "a"} | change if change else change
    with pytest.raises(BadInput) as refused:
        row_as(Whole, row, "rows.jsonl:7")
    assert str(refused.value).startswith(f"rows.jsonl:7: {message}")


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_a_path_that_no_file_system_takes(text):
    with pytest.raises(ValueError, match="is not a path"):
        require_path(text)
    require_path("outputs/달.csv")
    require_path(None)


# Values as JSON


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


@dataclass(frozen=True)
class Ends:
    low: float
    high: float


@dataclass(frozen=True)
class Measured:
    json_too: ClassVar = ("width",)
    name: str
    ends: Ends | None = None
    pair: Mapping[str, Any] | None = field(default=None, metadata=INLINE)
    note: str | None = field(default=None, metadata=OPTIONAL)
    array: Any = field(default=None, metadata=HIDDEN)
    n: int = field(default=0, metadata=key_named("count"))

    @property
    def width(self) -> float:
        return self.ends.high - self.ends.low if self.ends else math.nan


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, None),
        (-math.inf, None),
        (Path("a/b"), "a/b"),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.float32(0.5), 0.5),
        (np.float64("nan"), None),
        (np.array([[1.0, np.nan]]), [[1.0, None]]),
        ((1, (2.0, math.inf)), [1, [2.0, None]]),
        (range(2), [0, 1]),
        ({"a": (1,), 2: {"b": math.nan}}, {"a": [1], 2: {"b": None}}),
        ([Ends(0.0, math.nan)], [{"low": 0.0, "high": None}]),
        (Measured("x"), {"name": "x", "ends": None, "count": 0, "width": None}),
        (
            Measured("x", Ends(1.0, 3.0), {"a": 1, "b": 2}, "why", np.zeros(9), 4),
            {"name": "x", "ends": {"low": 1.0, "high": 3.0}, "a": 1, "b": 2, "note": "why", "count": 4, "width": 2.0},
        ),
    ],
    ids=repr,
)
def test_a_value_becomes_what_json_has(value: Any, expected: Any) -> None:
    assert encoded(value) == expected
    json.dumps(encoded(value), allow_nan=False)


@pytest.mark.parametrize("value", [object(), b"a", Ends], ids=["object", "bytes", "class"])
def test_other_values_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="JSON does not have"):
        encoded(value)
