"""Our own CSV tables: what is written comes back, and anything else is refused with its place."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harness.data.tables import csv_text, number_column, read_columns, taken, taken_ids
from harness.errors import BadInput


def test_csv_is_quoted_where_needed_and_none_is_an_empty_cell():
    text = csv_text({"id": ["q1", "q,2"], "score": [0.1 + 0.2, None], "text": ['say "yes"', "two\nlines"]})
    assert text == 'id,score,text\nq1,0.30000000000000004,"say ""yes"""\n"q,2",,"two\nlines"\n'
    assert csv_text({"id": [], "score": []}) == "id,score\n"
    with pytest.raises(ValueError, match="shorter"):
        csv_text({"id": ["q1", "q2"], "score": [1]})


cells = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('",\r\n\0 \ufeff\u2028'), max_size=8)


@given(st.lists(st.tuples(cells, cells), max_size=5))
@example([("a\rb", "\r"), ("\r\n", "")])
@example([("가" * 200_000, "")])
def test_any_table_comes_back(tmp_path_factory, rows):
    columns = {"first": [one for one, _ in rows], "second": [other for _, other in rows]}
    for written in (columns, {"only": columns["first"]}, columns | {"numbers": [1] * len(rows)}):
        file = tmp_path_factory.mktemp("table") / "items.csv"
        file.write_bytes(csv_text(written).encode())
        assert read_columns(file) == {name: [str(cell) for cell in column] for name, column in written.items()}


@given(st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_come_back_to_the_last_bit(tmp_path_factory, values):
    file = tmp_path_factory.mktemp("table") / "scores.csv"
    file.write_text(csv_text({"map": values}), "utf-8")
    read = number_column(read_columns(file)["map"], "map", file, lacking=True).tolist()
    assert [None if math.isnan(one) else one for one in read] == values


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"items\.csv:1: there is no header"),
        (b"id,a,a\n1,2,3\n", r"items\.csv:1: two columns are named 'a'"),
        (b"id,a\n1,2\n3\n", r"items\.csv:3: 1 cells, but the header has 2"),
        (b'id,a\n1,"2\n2"\n3,"x', r"items\.csv:4: broken CSV \(unexpected end of data\)"),
        (b"id,a\n1,b\rc\n", r"items\.csv:3: 1 cells"),  # as versions before 0.3 wrote a lone CR
        (b"id,a\n1,\xb0\xa1\n", r"items\.csv:\d+: broken CSV.*utf-8"),
    ],
)
def test_damaged_tables_are_refused_with_their_place(tmp_path, content, message):
    (tmp_path / "items.csv").write_bytes(content)
    with pytest.raises(BadInput, match=message):
        read_columns(tmp_path / "items.csv")


def test_damaged_columns_are_refused_with_their_row(tmp_path):
    file = tmp_path / "f.csv"
    with pytest.raises(BadInput, match=r"f\.csv:1: there is no column 'id'"):
        taken({"a": []}, "id", file)
    with pytest.raises(BadInput, match=r"f\.csv: rows 1 and 3 have the same id 'x'"):
        taken_ids({"id": ["x", "y", "x"]}, "id", file)
    for cell in ("x", "nan", "inf", "1e999", ""):
        with pytest.raises(BadInput, match=r"f\.csv: row 2: map '.*' is not a finite number"):
            number_column(["1", cell], "map", file)
