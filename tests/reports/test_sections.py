"""Sections on a narrow terminal."""

import io

from rich.console import Console

from harness.reports import sections
from harness.reports.sections import Section


def test_numbers_ids_and_measures_are_whole_in_80_columns():
    header = ["", "id", "modified_map@3", "kind", "as written", "run"]
    rows = [[label, f"3f2a91b{label}", "0.7480", "out of fold", "0.7553", "hybrid_lexical-kiwi " * 3] for label in "01"]
    console = Console(file=io.StringIO(), width=80)
    sections.show(console, "Title", [Section("Runs", (), header, rows)])
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[3].split() == ["id", "modified_map@3", "kind", "as", "written", "run"]
    assert [line[3:11] for line in lines if "0.7480" in line] == ["3f2a91b0", "3f2a91b1"]
    assert console.file.getvalue().count("hybrid_lexical-kiwi") == 6


def test_the_names_of_long_measures_break_between_words():
    header = ["", "id", "correction_recall", "correction_precision", "public", "private", "run"]
    row = ["A", "3f2a91b0", "0.5978", "0.4911", "0.6250 (1)", "0.5769 (2)", "eager.csv"]
    console = Console(file=io.StringIO(), width=80)
    sections.show(console, "Title", [Section("Submissions", (), header, [row])])
    lines = console.file.getvalue().splitlines()
    assert lines[3].split() == ["correction_", "correction_"]
    assert lines[4].split() == ["id", "recall", "precision", "public", "private", "run"]
    assert lines[5].split() == " ".join(row).split()


def test_a_narrow_terminal_breaks_keys_at_their_dots_alone():
    header = ["", *"ABCDE"]
    values = ["hybrid_lexical", "bm25", "hybrid_lexical", "dense", "none"]
    keys = ["retriever", "retriever.bigram.tokenizer.high", "fusion.weights.bigram", "encoder.dimensions"]
    rows = [[key, *values] for key in keys] + [["tokenizer.tags", *['["NN*", "NR", "NP", "VV*", "VA*"]'] * 5]]

    def shown(width):
        console = Console(file=io.StringIO(), width=width)
        sections.show(console, "Title", [Section("What differs", (), header, rows)])
        return console.file.getvalue()

    narrow = shown(80).splitlines()
    assert max(map(len, narrow)) <= 80
    assert [line[:18].rstrip() for line in narrow[4:12] if line[:1].strip()] == [
        "retriever", "retriever.bigram.", "tokenizer.high", "fusion.weights.", "bigram", "encoder.dimensions",
    ]  # fmt: skip
    assert "…" not in shown(80)
    assert all(key in shown(200) for key in keys)  # where there is room, whole
