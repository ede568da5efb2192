"""Attributes of queries, by which scores can be sliced: given by the data, or derived from texts and labels.

An attribute that the data give replaces the derived attribute of the same name. Derived attributes:

length: words in the user turns. `short`: at most SHORT, `medium`: at most MEDIUM, `long`: more.
script: the script of the letters in the user turns: `hangul`, `latin`, `mixed` (several scripts) or `other`.
turns: the number of user turns.
asks: what the last user turn asks for, by its first question word in Korean or English: `who`, `when`, `where`, `what`,
    `how many`, `why` or `how`. A Korean question without a question word is judged by its last noun (그 사람은? is
    `who`). `none` if neither is known.
relevant: the number of relevant documents: `0` (no retrieval is needed), `1`, `2-5` or `6+`. Unlabelled queries have no
    value, and neither have unanswerable queries.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.data.files import some
from harness.data.qrels import Qrels
from harness.data.scripts import shares
from harness.errors import BadInput, did_you_mean
from retrievers.base import Query

Attributes = Mapping[str, Mapping[str, str]]  # attribute -> query_id -> value

LONGEST = 100  # characters of a name or a value; longer ones are no attribute
MOST_VALUES = 50  # an attribute with more values cannot be sliced
NO_VALUE = "(none)"  # the value, in slices, of queries that lack the attribute
SHORT, MEDIUM = 5, 10  # words, see `length`
METADATA = "metadata"  # fields in this field of a row are attributes, too
_PLACES = {"short": 0, "medium": 1, "long": 2}  # values in an order of their own
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_SCRIPTS = {"HANGUL": "hangul", "LATIN": "latin"}
_ASKS = re.compile(
    r"(?P<how_many>\bhow (?:many|much|long|often|old|far|big|large|tall|high)\b|얼마"
    r"|몇 ?시간|(?:며칠|몇 ?(?:년|개?월)) ?(?:간|동안|만))"
    r"|(?P<when>\bwhen\b|\bwh(?:at|ich) (?:year|month|day|date|time)\b|언제(?!나)|며칠|몇 ?(?:년도|년에|월|세기|시\b))"
    r"|(?P<where>\bwhere\b|\bwh(?:at|ich) (?:country|city|place)\b|어디|어느 ?(?:곳|나라|지역|도시))"
    r"|(?P<who>\bwho(?:m|se)?\b|누구|\b누가\b|\b누군)"
    r"|(?P<why>\bwhy\b|\b왜\b|어째서)"
    r"|(?P<how>\bhow\b|어떻게)"
    r"|(?P<what>\bwhat\b|\bwhich\b|무엇|무슨|어떤|어느|\b(?:뭐|뭘|뭔))"
    r"|(?P<number>(?<!몇)몇(?!몇))",
    re.IGNORECASE,
)
_LAST = re.compile(
    r"(?:(?P<who>사람|인물)|(?P<where>곳|장소|지역|나라|국가|도시)|(?P<when>\b해|년도|연도|날짜|일자|\b날|시기|\b때)"
    r"|(?P<how_many>\b수|[갯개횟]수|숫자|나이|금액|액수)|(?P<why>이유|원인|까닭)|(?P<how>방법|방식)"
    r"|(?P<what>\b것|이름|제목|명칭|\b말|\b뜻))(?:은|는)\W*$"
)


@dataclass(frozen=True, eq=False)
class Slice:
    """The queries with one value of an attribute. inside: bool [Q], which of the Q queries these are."""

    attribute: str
    value: str
    inside: np.ndarray

    @property
    def name(self) -> str:
        return f"{self.attribute}={self.value}"


def given_attributes(row: Mapping[str, object], *own: str) -> dict[str, str]:
    """Return the attributes in a query's row: the fields of the row and of its `metadata`, as texts.

    Lists, objects, blank values, and names or values of more than LONGEST characters are left out.

    own: fields that the format defines.
    """
    inner = row.get(METADATA)
    fields = {**(inner if isinstance(inner, Mapping) else {}), **row}
    texts = {name: _text(value) for name, value in fields.items() if name not in own and len(name) <= LONGEST}
    return {sys.intern(name): sys.intern(text) for name, text in texts.items() if 0 < len(text) <= LONGEST}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(str(value).split()) if isinstance(value, str | int | float) else ""


def attributes_of(queries: Sequence[Query], qrels: Qrels | None = None) -> dict[str, dict[str, str]]:
    """Return attribute -> query_id -> value. A query may lack a value. Given attributes come before derived ones."""
    found: dict[str, dict[str, str]] = {}
    for query in queries:
        for name, value in query.attributes.items():
            found.setdefault(name, {})[query.query_id] = value
    for name, derive in _DERIVED.items():
        if name not in found:
            found[name] = {query.query_id: derive(query) for query in queries}
    if qrels is not None:
        ids = {query.query_id for query in queries}
        sizes = {query_id: len(grades) for query_id, grades in qrels.grades.items() if query_id in ids}
        found.setdefault("relevant", {query_id: _relevant(size) for query_id, size in sizes.items()})
    return found


def _length(query: Query) -> str:
    words = len(query.text.split())
    return "short" if words <= SHORT else "medium" if words <= MEDIUM else "long"


def _script(query: Query) -> str:
    scripts = [*shares(query.text)]
    return "mixed" if len(scripts) > 1 else _SCRIPTS.get("".join(scripts), "other")


def _asks(query: Query) -> str:
    found = _ASKS.search(query.user_turns[-1]) or _LAST.search(query.user_turns[-1])
    kind = (found.lastgroup or "") if found else "none"
    return "how many" if kind == "number" else kind.replace("_", " ")


def _relevant(count: int) -> str:
    return str(count) if count < 2 else "2-5" if count <= 5 else "6+"


_DERIVED: Mapping[str, Callable[[Query], str]] = {
    "length": _length,
    "script": _script,
    "turns": lambda query: str(len(query.user_turns)),
    "asks": _asks,
}


def slices_by(names: Sequence[str], known: Attributes, query_ids: Sequence[str]) -> list[Slice]:
    """Return a slice for each value of the named attributes among the queries, in order of the names.

    Queries without a value are a slice, too. Raise BadInput for an unknown attribute, and for one with more than
    MOST_VALUES values.
    """
    found = []
    for name in dict.fromkeys(names):
        values = _values(name, known)
        cells = np.array([values.get(query_id, NO_VALUE) for query_id in query_ids], object)
        for value in sorted({*cells}, key=_order):
            found.append(Slice(name, value, cells == value))
    return found


def _values(name: str, known: Attributes) -> Mapping[str, str]:
    if name not in known:
        raise BadInput(
            f"slices: the queries have no attribute {name!r:.60}.{did_you_mean(name, known)} They have: "
            f"{some(known, 20)}. Lists, objects and texts of more than {LONGEST} characters are not attributes."
        )
    if (count := len({*known[name].values()})) > MOST_VALUES:
        raise BadInput(
            f"slices: attribute {name} has {count:,} different values, but may have at most {MOST_VALUES}. Give the "
            "queries a field with fewer values, such as groups of these values."
        )
    return known[name]


def _order(value: str) -> tuple[int, float, str]:
    """Return a sort key: numbers by size, then values in an order of their own, then other texts, then NO_VALUE."""
    if _NUMBER.fullmatch(value):
        return 0, float(value), value
    return (1, _PLACES[value], value) if value in _PLACES else (2 + (value == NO_VALUE), 0.0, value)
