"""Numbers and texts packed small for a page, which unpacks them in the browser: raw deflate, as base64."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

DIGITS, FEWER_DIGITS = 6, 4  # of a value; fewer where the values are too many to be listed
LISTED = 65_536  # pairs of a value and a kind of loss, at most, for the longer values
_DEFLATED = -15  # zlib's sign for a stream without header and checksum, DecompressionStream's "deflate-raw"


def packed(content: bytes) -> str:
    """Bytes as text that JSON and HTML take as it is."""
    packer = zlib.compressobj(level=9, wbits=_DEFLATED)
    return base64.b64encode(packer.compress(content) + packer.flush()).decode()


def unpacked(text: str) -> bytes:
    """The bytes that `packed` made a text of."""
    return zlib.decompress(base64.b64decode(text), wbits=_DEFLATED)


def packed_json(value: Any) -> str:
    return packed(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode())


def packed_places(places: np.ndarray) -> dict[str, Any]:
    """Whole numbers from 0 as {bits, data}: little-endian, in the fewest of 8, 16 and 32 bits that fit the greatest."""
    most = int(places.max(initial=0))
    bits = next(one for one in (8, 16, 32) if most < 2**one)
    return {"bits": bits, "data": packed(places.astype(f"<u{bits // 8}").tobytes())}


def unpacked_places(content: dict[str, Any]) -> np.ndarray:
    """The numbers that `packed_places` packed, int64."""
    return np.frombuffer(unpacked(content["data"]), f"<u{content['bits'] // 8}").astype(np.int64)


@dataclass(frozen=True, eq=False)
class PackedMatrix:
    """The value and the kind of loss of R runs on Q queries.

    table: the distinct pairs (value, place of the kind of loss), the value None where it is undefined.
    cells: int [Q, R], the pair of each query and run. Runs agree on easy queries, so that rows of queries pack smaller
        than rows of runs.
    """

    table: list[tuple[float | None, int]]
    cells: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, losses: np.ndarray) -> PackedMatrix:
        """Values are rounded to six decimals; to four where there would be more than 65,536 pairs.

        values: float [R, Q], NaN where undefined. losses: int [R, Q].
        """
        found = cls._rounded(values, losses, DIGITS)
        return found if len(found.table) <= LISTED else cls._rounded(values, losses, FEWER_DIGITS)

    @classmethod
    def _rounded(cls, values: np.ndarray, losses: np.ndarray, digits: int) -> PackedMatrix:
        rounded = np.round(values.T, digits) + 0.0  # which makes 0.0 of -0.0
        known, value_at = np.unique(rounded, return_inverse=True)  # all NaN as one, the last
        kinds = int(losses.max(initial=0)) + 1
        pairs, cells = np.unique(value_at.reshape(rounded.shape) * kinds + losses.T, return_inverse=True)
        listed = [None if value != value else value for value in known.tolist()]
        table = [(listed[pair // kinds], pair % kinds) for pair in pairs.tolist()]
        return cls(table, cells.reshape(rounded.shape))

    def to_json(self) -> dict[str, Any]:
        return {"table": self.table, "cells": packed_places(self.cells)}
