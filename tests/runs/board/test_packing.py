"""Matrices of values and kinds of loss come back as they were packed, in few bytes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from harness.runs.board.queries import (
    LISTED,
    PackedMatrix,
    packed,
    packed_json,
    packed_places,
    unpacked,
    unpacked_places,
)

NAN = float("nan")


def pairs(matrix):
    """[R, Q] of the pairs that a browser reads."""
    content = matrix.to_json()
    cells = unpacked_places(content["cells"]).reshape(matrix.cells.shape)
    return [[content["table"][cell] for cell in run] for run in cells.T]


def test_a_matrix_by_hand():
    values = np.array([[1.0, 0.5, NAN], [0.5, 0.5, NAN]])
    losses = np.array([[0, 4, 0], [4, 3, 0]])
    matrix = PackedMatrix.of(values, losses)
    assert matrix.table == [(0.5, 3), (0.5, 4), (1.0, 0), (None, 0)]  # each pair once, by value, then by loss
    assert matrix.cells.tolist() == [[2, 1], [1, 0], [3, 3]]  # a row for each query
    assert pairs(matrix) == [[(1.0, 0), (0.5, 4), (None, 0)], [(0.5, 4), (0.5, 3), (None, 0)]]


def test_no_run_and_no_query_pack_too():
    for shape in ((0, 3), (3, 0)):
        assert pairs(PackedMatrix.of(np.zeros(shape), np.zeros(shape, int))) == [[]] * shape[0]


@given(st.data())
def test_what_is_packed_comes_back(data):
    shape = data.draw(st.tuples(st.integers(1, 6), st.integers(1, 6)))
    some = st.one_of(st.just(NAN), st.floats(-1, 1).map(lambda one: round(one, 6)))
    values = data.draw(arrays.arrays(float, shape, elements=some))
    losses = data.draw(arrays.arrays(np.int8, shape, elements=st.integers(0, 5)))
    for run, (ours, kinds) in enumerate(zip(values, losses, strict=True)):
        for (value, kind), own, expected in zip(pairs(PackedMatrix.of(values, losses))[run], ours, kinds, strict=True):
            assert (value is None) == np.isnan(own)
            assert value is None or value == own
            assert kind == expected


@given(st.lists(st.integers(0, 2**32 - 1)))
def test_places_come_back_in_the_fewest_bits(places):
    content = packed_places(np.array(places, np.int64))
    assert unpacked_places(content).tolist() == places
    assert content["bits"] == (8 if max(places, default=0) < 256 else 16 if max(places) < 65_536 else 32)


@given(st.binary())
def test_bytes_come_back(content):
    assert unpacked(packed(content)) == content


def test_json_keeps_its_letters():
    assert unpacked(packed_json({"말": ["<", None, 1.5]})).decode() == '{"말":["<",null,1.5]}'


def test_values_that_are_too_many_lose_digits():
    """90,000 distinct values: listing each would be larger than the page may be."""
    values = np.linspace(0, 1, 90_000).reshape(90, 1000)
    matrix = PackedMatrix.of(values, np.zeros(values.shape, int))
    assert len(matrix.table) == 10_001 <= LISTED
    shown = np.array([value for value, _ in matrix.table])[matrix.cells.T]
    assert np.abs(shown - values).max() <= 0.5001e-4
