"""The script that holds docs/results.md against what its commands give."""

import check_results
import pytest

DOCUMENT = """
<!-- exact: harness run tokenizer=whitespace {1} ; 2 = modified_map@3 (interval) ; 3 = mrr -->
<!-- exact: harness run tokenizer=whitespace {1} gate=auto ; 4 = oof/mrr -->
| `...` | modified_map@3 | mrr | with a gate |
|---|---|---|---|
| (nothing) | **.6091** (.520 – .683) | 0.7 | .1 |
| `top_k=1` and more | ≈.61 (.5 – .7) | −0.25 | |

| another table | 0.5 |
"""


def test_the_rows_of_a_table_are_read():
    first, gated, second = check_results.checks(DOCUMENT)
    assert (first.line, first.command) == (6, "run tokenizer=whitespace ")
    assert first.printed == {
        "modified_map@3": ".6091", "interval_low/modified_map@3": ".520", "interval_high/modified_map@3": ".683",
        "mrr": "0.7",
    }  # fmt: skip
    assert (gated.command, gated.printed) == ("run tokenizer=whitespace  gate=auto", {"oof/mrr": ".1"})
    assert (second.line, second.command, second.printed) == (7, "run tokenizer=whitespace top_k=1", {"mrr": "−0.25"})


def test_a_comment_that_says_nothing_is_refused():
    with pytest.raises(ValueError, match="line 1: cannot be understood"):
        list(check_results.checks("<!-- exact: harness run ; second = mrr -->"))


@pytest.mark.parametrize(
    ("printed", "value", "same"),
    [
        (".6091", 0.60909, True), (".6091", 0.60904, False), ("0.520", 0.5199, True), ("−0.25", -0.2502, True),
        ("0.5", None, False), (".6815", 0.6785, False),
    ],
)  # fmt: skip
def test_numbers_agree_if_they_round_to_the_printed_digits(printed, value, same):
    assert check_results.agrees(printed, value) == same


def test_every_mark_of_the_results_leads_to_rows():
    """And all of them name data that the script knows."""
    text = check_results.DOCUMENT.read_text("utf-8")
    found = list(check_results.checks(text))
    lines = text.splitlines()
    marks = [number for number, line in enumerate(lines, start=1) if "<!-- exact" in line]
    assert len(marks) == text.count("<!-- exact: harness") >= 10
    for number in marks:
        end = next(place for place in range(number, len(lines)) if not lines[place].strip())
        assert any(number < check.line <= end for check in found), f"line {number} marks nothing"
    assert all(value for check in found for value in check.printed.values())


def test_a_wrong_digit_is_found_and_missing_data_are_skipped(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(check_results, "computed", lambda *_: {"mrr": 0.71664})
    document = tmp_path / "results.md"
    rows = ["| `seed=1` | 0.7166 |", "| `dataset=beir dataset.path=CRANFIELD` | 0.5 |", "| `seed=2` | .717 |"]
    document.write_text("\n".join(["<!-- exact: harness run tokenizer=word {1} ; 2 = mrr -->", *rows]), "utf-8")
    assert check_results.main(tmp_path, [], document) == 0
    document.write_text(document.read_text("utf-8").replace(".7166", ".7167"), "utf-8")
    assert check_results.main(tmp_path, [], document) == 1
    said = capsys.readouterr().out
    assert "as printed: line 2: run tokenizer=word seed=1" in said
    assert "skipped, no data: line 3" in said
    assert "mrr is printed as 0.7167 and is 0.71664" in said


@pytest.mark.slow
def test_intervals_and_parts_are_known_too(toy, tmp_path, monkeypatch):
    """MLflow has them of the objective alone."""
    monkeypatch.chdir(tmp_path)
    found = check_results.computed("run dataset=contest dataset.path=toy tokenizer=char_ngram", tmp_path / "outputs")
    assert {"interval_low/modified_map_at_3", "private/modified_map_at_3", "mrr_at_10"} <= found.keys()
