"""One table, everywhere: worked by hand, read back by other parsers, and compiled where LaTeX is installed."""

import csv
import io
import math
import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from harness.reports import report as reports
from harness.reports.report import Report
from harness.reports.tables import (
    INTERVAL,
    Column,
    Number,
    Table,
    best_marked,
    defused,
    escaped,
    latex,
    markdown,
    on_screen,
    rendered,
)
from harness.reports.tables import csv as as_csv

HOSTILE = ("a|b & c_d #1 50% $x$ \\end{table} ^~<b>\"`'--", "[2ex] row", "* star", "=SUM(A1)", "-{}", "?`!`", "@me", "")
TABLE = Table(
    "2 runs on 220 queries",
    [
        Column("run"),
        Column("map@3", "value"),
        Column("difference", "difference"),
        Column("p", "p"),
        Column("n", "count"),
    ],
    [
        ["bm25_kiwi", Number(0.6091, 0.55, 0.664), None, None, 1220],
        ["auto", Number(0.748, 0.69, 0.8, True, True), Number(0.1389, 0.08, 0.2), 0.0001, 220],
    ],
    ["† differs from the first run."],
    "runs",
)


def shown_rows(text):
    """The rows of the only table in a Markdown text, as another program shows them."""
    rows = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "tr_open":
            rows.append([])
        if token.type == "inline" and token.level == 4:  # in a cell
            rows[-1].append("".join(" " if one.content == "<br>" else one.content for one in token.children))
    return rows


def read(text):
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


def named(texts):
    return Table(texts[0], [Column("run"), Column("v", "value")], [[one, 0.5] for one in texts], texts)


def visible(text):
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())


def test_markdown_and_csv_by_hand():
    assert markdown(TABLE) == (
        "**2 runs on 220 queries**\n\n"
        "| run | map@3 | difference | p | n |\n"
        "| --- | ---: | ---: | ---: | ---: |\n"
        "| bm25\\_kiwi | 0.609 [0.550, 0.664] | – | – | 1,220 |\n"
        "| auto | **0.748**† [0.690, 0.800] | +0.139 [+0.080, +0.200] | &lt; 0.001 | 220 |\n\n"
        "† differs from the first run.\n"
    )
    assert as_csv(TABLE) == (
        "run,map@3,map@3_low,map@3_high,map@3_significant,difference,difference_low,difference_high,p,n\n"
        "bm25_kiwi,0.6091,0.55,0.664,0,,,,,1220\n"
        "auto,0.748,0.69,0.8,1,0.1389,0.08,0.2,0.0001,220\n"
    )


def test_latex_by_hand():
    text = latex(TABLE)
    # The mark takes room in every cell of its column, so that the digits stand below each other.
    assert text == (
        "% \\usepackage{booktabs,graphicx}\n"
        "\\begin{table}[tbp]\n\\centering\n\\caption{2 runs on 220 queries}\n\\label{tab:runs}\n\\smallskip\n"
        "\\resizebox{\\ifdim\\width>\\linewidth\\linewidth\\else\\width\\fi}{!}{%\n"
        "\\begin{tabular}{lrrrr}\n\\toprule\nrun & map@3 & difference & p & n \\\\\n\\midrule\n"
        "bm25\\_kiwi & 0.609\\phantom{\\textsuperscript{\\dag}} [0.550, 0.664] & -- & -- & 1,220 \\\\\n"
        "auto & \\textbf{0.748}\\textsuperscript{\\dag} [0.690, 0.800] & $+$0.139 [$+$0.080, $+$0.200] "
        "& $<$ 0.001 & 220 \\\\\n\\bottomrule\n\\end{tabular}}\n\\par\\smallskip\n"
        "\\parbox{\\linewidth}{\\footnotesize \\dag{} differs from the first run.}\n\\end{table}\n"
    )
    assert "kotex" in latex(named(["달은 왜 모양이 변해?"])).splitlines()[1]  # a package that Hangul needs
    assert "xelatex" not in latex(named(["hybrid_light · auto – 95 %"]))  # prints as signs of mathematics
    columns = [Column("run"), *(Column(f"m{i}", "value") for i in range(3))]
    found = latex(Table("c", columns, [["a", Number(0.5, 0.4, 0.6), Number(0.1, 0.0, 0.2), Number(0.3, 0.2, 0.4)]]))
    assert "a & 0.500 & 0.100 & 0.300 \\\\\n & {\\scriptsize [0.400, 0.600]} & " in found  # many intervals
    assert rendered([TABLE, TABLE], "latex").count("\\begin{table}") == 2


def test_a_screen_shows_four_decimals_and_intervals_beside_their_numbers():
    shown = on_screen(TABLE)
    assert [one.name for one in shown.columns] == ["run", "map@3", INTERVAL, "difference", INTERVAL, "p", "n"]
    assert shown.rows == [
        ("bm25_kiwi", "0.6091", "0.550 – 0.664", "–", "", "–", "1,220"),
        ("auto", "0.7480", "0.690 – 0.800", "+0.1389", "+0.080 to +0.200", "< 0.001", "220"),
    ]


@pytest.mark.parametrize(
    ("cell", "column", "screen", "paste"),
    [
        (0.0, Column("d", "difference"), "0", "+0.000"),
        (0.4286, Column("s", "percent", 1), "42.9 %", "42.9 %"),
        (0.9999, Column("s", "percent", 0), "> 99 %", "&gt; 99 %"),
        (1, Column("s", "percent", 0), "100 %", "100 %"),
        (1234.5, Column("ms", "rough"), "1,234", "1,234"),
        (0.0123, Column("ms", "rough"), "0.012", "0.012"),
        (0.61234, Column("k", "value", 3), "0.612", "0.612"),
        (Number(0.5, beside=2), Column("public", "value"), "0.5000 (2)", "0.500 (2)"),
        (math.nan, Column("v", "value"), "–", "–"),
        ("two\nlines", Column("t"), "two\nlines", "two<br>lines"),
    ],
)
def test_kinds_of_numbers(cell, column, screen, paste):
    table = Table("c", [column], [[cell]])
    assert on_screen(table).rows == [(screen,)]
    assert markdown(table).splitlines()[-1] == f"| {paste} |"


def test_columns_of_a_medium_and_empty_ones():
    columns = [
        Column("a", on="paste"),
        Column("b", on="screen"),
        Column("c", "value"),
        Column("d"),
        Column("e", "value"),
    ]
    table = Table("", columns, [["x", "y", None, "", 0.5], ["", "z", math.nan, "", None]])
    assert [one.name for one in table.for_medium("paste").columns] == ["a", "c", "d", "e"]
    assert [one.name for one in table.without_empty().columns] == ["a", "b", "e"]
    assert as_csv(table.without_empty()) == "a,e\nx,0.5\n,\n"


def test_the_best_is_what_looks_the_best():
    """0.7481 and 0.7479 both show 0.748; a dash and a lonely number are no best."""
    cells = best_marked([Number(0.7481), Number(0.7479), Number(0.7), Number(math.nan)])
    assert [one.best for one in cells] == [True, True, False, False]
    assert not best_marked([Number(0.9), Number(math.nan)])[0].best


def test_a_spreadsheet_computes_no_text():
    for text in ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"):
        assert read(as_csv(named([text])))[1][0] == defused(text) == f"'{text}"
        assert defused(f" {text.strip()}") == f" {text.strip()}"


@given(st.lists(st.text(max_size=20), min_size=1, max_size=4))
def test_any_text_comes_back_from_csv(texts):
    header, *rows = read(as_csv(named(texts)))
    assert header == ["run", "v"]
    assert rows == [[defused(one), "0.5"] for one in texts]


@given(st.lists(st.floats(allow_nan=True, allow_infinity=False), min_size=1, max_size=4))
def test_any_number_comes_back_from_csv(values):
    table = Table("c", [Column("v", "value"), Column("n", "count")], [[v, 3] for v in values])
    found = [float(row[0] or "nan") for row in read(as_csv(table))[1:]]
    assert all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(found, values, strict=True))


@given(st.lists(st.text(max_size=20) | st.sampled_from(HOSTILE), min_size=1, max_size=4))
def test_any_text_is_shown_by_markdown_as_it_is(texts):
    header, *rows = shown_rows(markdown(named([text or "x" for text in texts])))
    assert header == ["run", "v"]
    assert [[" ".join(name.split()), value] for name, value in rows] == [
        [" ".join(visible(text or "x").split()), "0.500"] for text in texts
    ]


@given(st.text(max_size=30) | st.sampled_from(HOSTILE))
def test_no_text_leaves_its_cell_in_latex(text):
    """Without what is escaped, nothing is left that LaTeX acts on; braces are balanced at every place."""
    found = escaped(text)
    assert "\n" not in found
    bare = re.sub(r"\\[{}$&#_%]|\\[a-z]+\{\}|\$(\\[a-z]+|-)\$|\\char34\{\}", "", found)
    assert not set(bare) & set('\\$&#_%^~<>|`"')
    depth = 0
    for letter in bare:
        depth += (letter == "{") - (letter == "}")
        assert depth >= 0
    assert depth == 0
    assert not re.match(r"[*[]", found)  # after the end of a row these are an option


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="LaTeX is not installed")
def test_hostile_tables_compile(tmp_path):
    both = rendered([TABLE, named(HOSTILE)], "latex")
    page = f"\\documentclass{{article}}\\usepackage{{booktabs,graphicx}}\\begin{{document}}\n{both}\\end{{document}}\n"
    (tmp_path / "page.tex").write_text(page, "utf-8")
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "page.pdf").stat().st_size > 1000


# ---- Reports

REPORT = Report("Title", ["A is *better*."], [TABLE, Table("Empty", [Column("a")])], ["Read <this>."], ["Files: x"],
                ["harness run"])  # fmt: skip


def printed(report, width=80):
    console = Console(file=io.StringIO(), width=width, markup=False)
    reports.show_report(console, report)
    return console.file.getvalue()


def test_a_report_says_what_matters_most_first_and_legends_above_rows():
    text = printed(REPORT)
    places = [text.index(one) for one in ("Title", "Verdict", "A is *better*.", "2 runs on", "† differs", "bm25_kiwi",
                                          "Notes", "Read <this>.", "Files: x", "Next:", "  harness run")]  # fmt: skip
    assert places == sorted(places)
    assert "Empty" not in text


def test_a_report_as_markdown_html_and_data_of_a_page():
    text = reports.report_markdown(REPORT)
    assert text.startswith("# Title\n\n## Verdict\n\nA is \\*better\\*.\n\n## 2 runs on 220 queries\n\n† differs")
    assert text.endswith("| 220 |\n\n## Notes\n\nRead &lt;this&gt;.\n")
    assert "<p>Read &lt;this&gt;.</p>" in reports.report_html(REPORT)
    assert "<td>0.690 – 0.800</td>" in reports.report_html(REPORT)
    verdict, runs, notes = reports.page_data(REPORT)
    assert (verdict["lines"], notes["lines"], runs["title"]) == (["A is *better*."], ["Read <this>."], TABLE.caption)
    assert runs["header"] == ["run", "map@3", INTERVAL, "difference", INTERVAL, "", "p", "n"]
    assert [row[5] for row in runs["rows"]] == ["", [0.1389, 0.08, 0.2]]  # drawn behind the interval


def lines_of(caption, columns, rows, width=80):
    return printed(Report("Title", tables=[Table(caption, columns, rows)]), width).splitlines()


def test_numbers_ids_and_measures_are_whole_in_80_columns():
    columns = [Column(""), Column("id"), Column("modified_map@3", "value"), Column("kind"), Column("raw", "value"),
               Column("run")]  # fmt: skip
    rows = [[label, f"3f2a91b{label}", 0.748, "out of fold", 0.7553, "hybrid_lexical-kiwi " * 3] for label in "01"]
    lines = lines_of("Runs", columns, rows)
    assert max(map(len, lines)) <= 80
    assert lines[3].split() == ["id", "modified_map@3", "kind", "raw", "run"], lines
    assert [line[3:11] for line in lines if "0.7480" in line] == ["3f2a91b0", "3f2a91b1"]
    assert "".join(lines).count("hybrid_lexical-kiwi") == 6


def test_the_names_of_long_measures_break_between_words():
    names = ["correction_recall", "correction_precision", "public", "private"]
    columns = [Column(""), Column("id"), *(Column(name, "value") for name in names), Column("run")]
    row = ["A", "3f2a91b0", 0.5978, 0.4911, Number(0.625, beside=1), Number(0.5769, beside=2), "eager.csv"]
    assert [line.split() for line in lines_of("Submissions", columns, [row])[3:6]] == [
        ["correction_", "correction_"],
        ["id", "recall", "precision", "public", "private", "run"],
        ["A", "3f2a91b0", "0.5978", "0.4911", "0.6250", "(1)", "0.5769", "(2)", "eager.csv"],
    ]


def test_a_narrow_terminal_breaks_keys_at_their_dots_alone():
    values = ["hybrid_lexical", "bm25", "hybrid_lexical", "dense", "none"]
    keys = ["retriever", "retriever.bigram.tokenizer.high", "fusion.weights.bigram", "encoder.dimensions"]
    rows = [[key, *values] for key in keys] + [["tokenizer.tags", *['["NN*", "NR", "NP", "VV*", "VA*"]'] * 5]]
    table = "What differs", [*map(Column, ["", *"ABCDE"])], rows
    narrow = lines_of(*table)
    assert max(map(len, narrow)) <= 80
    assert [line[:18].rstrip() for line in narrow[4:12] if line[:1].strip()] == [
        "retriever", "retriever.bigram.", "tokenizer.high", "fusion.weights.", "bigram", "encoder.dimensions",
    ]  # fmt: skip
    assert "…" not in "".join(narrow)
    assert all(key in "".join(lines_of(*table, width=200)) for key in keys)  # where there is room, whole
