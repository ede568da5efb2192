"""Values as JSON."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from harness.storage.typed import HIDDEN, INLINE, OPTIONAL, encoded, key_named


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
        (None, None),
        (True, True),
        ("ß", "ß"),
        (3, 3),
        (0.5, 0.5),
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
        (np.array(["a"]), ["a"]),
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
