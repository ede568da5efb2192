"""Tables to paste: worked by hand, read back by other parsers, and compiled where LaTeX is installed."""

import csv
import io
import math
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from harness.reports.tables import (
    FORMATS,
    Column,
    Number,
    Table,
    best_marked,
    defused,
    escaped,
    latex,
    markdown,
    rendered,
)
from harness.reports.tables import csv as as_csv

HOSTILE = ("a|b & c_d #1 50% $x$ \\end{table} ^~<b>\"`'--", "[2ex] row", "* star", "=SUM(A1)", "-{}", "?`!`", "@me", "")
TABLE = Table(
    "runs",
    "2 runs on 220 queries",
    [
        Column("run"),
        Column("map@3", "value"),
        Column("difference", "difference"),
        Column("p", "p"),
        Column("n", "count"),
    ],
    [
        ["bm25_kiwi", Number(0.6091, 0.55, 0.664), Number(math.nan), Number(math.nan), Number(1220)],
        ["auto", Number(0.748, 0.69, 0.8, True, True), Number(0.1389, 0.08, 0.2), Number(0.0001), Number(220)],
    ],
    ["† differs from the first run."],
)


class Cells(HTMLParser):
    """The texts of the rows of a table."""

    def __init__(self):
        super().__init__()
        self.rows, self.inside = [], False

    def handle_starttag(self, tag, attributes):
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.inside = True

    def handle_endtag(self, tag):
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data):
        if self.inside:
            self.rows[-1][-1] += data


def shown_rows(text):
    """The rows of the only table in a Markdown text, as another program shows them."""
    parser = Cells()
    parser.feed(MarkdownIt("commonmark").enable("table").render(text))
    return parser.rows


def read(text):
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


def named(texts):
    return Table("t", texts[0], [Column("run"), Column("v", "value")], [[one, Number(0.5)] for one in texts], texts)


def visible(text):
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())


def test_markdown_by_hand():
    assert markdown(TABLE) == (
        "**2 runs on 220 queries**\n\n"
        "| run | map@3 | difference | p | n |\n"
        "| --- | ---: | ---: | ---: | ---: |\n"
        "| bm25\\_kiwi | 0.609 [0.550, 0.664] | – | – | 1,220 |\n"
        "| auto | **0.748**† [0.690, 0.800] | +0.139 [+0.080, +0.200] | &lt; 0.001 | 220 |\n\n"
        "† differs from the first run.\n"
    )


def test_latex_by_hand():
    lines = latex(TABLE).splitlines()
    assert lines[0] == "% \\usepackage{booktabs,graphicx}"
    assert lines[1:5] == [
        "\\begin{table}[tbp]",
        "\\centering",
        "\\caption{2 runs on 220 queries}",
        "\\label{tab:runs}",
    ]
    start = lines.index("\\toprule")
    assert lines[start - 1] == "\\begin{tabular}{lrrrr}"
    # The mark takes room in every cell of its column, so that the digits stand below each other.
    assert lines[start : start + 6] == [
        "\\toprule",
        "run & map@3 & difference & p & n \\\\",
        "\\midrule",
        "bm25\\_kiwi & 0.609\\phantom{\\textsuperscript{\\dag}} [0.550, 0.664] & -- & -- & 1,220 \\\\",
        "auto & \\textbf{0.748}\\textsuperscript{\\dag} [0.690, 0.800] & $+$0.139 [$+$0.080, $+$0.200] "
        "& $<$ 0.001 & 220 \\\\",
        "\\bottomrule",
    ]
    assert "\\footnotesize \\dag{} differs from the first run." in latex(TABLE)


def test_csv_by_hand_has_all_digits():
    assert as_csv(TABLE) == (
        "run,map@3,map@3_low,map@3_high,map@3_significant,difference,difference_low,difference_high,p,n\n"
        "bm25_kiwi,0.6091,0.55,0.664,0,,,,,1220\n"
        "auto,0.748,0.69,0.8,1,0.1389,0.08,0.2,0.0001,220\n"
    )


def test_many_intervals_stand_below_their_numbers():
    columns = [Column("run"), *(Column(f"m{i}", "value") for i in range(3))]
    found = latex(
        Table("t", "c", columns, [["a", Number(0.5, 0.4, 0.6), Number(0.1, 0.0, 0.2), Number(0.3, 0.2, 0.4)]])
    )
    assert "a & 0.500 & 0.100 & 0.300 \\\\\n & {\\scriptsize [0.400, 0.600]} & " in found


def test_the_best_is_what_looks_the_best():
    """0.7481 and 0.7479 both show 0.748; a dash and a lonely number are no best."""
    cells = best_marked([Number(0.7481), Number(0.7479), Number(0.7), Number(math.nan)])
    assert [one.best for one in cells] == [True, True, False, False]
    assert not best_marked([Number(0.9), Number(math.nan)])[0].best


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_spreadsheet_computes_no_text(text):
    assert defused(text) == f"'{text}"
    assert read(as_csv(named([text])))[1][0] == f"'{text}"
    assert defused(f" {text.strip()}") == f" {text.strip()}"


def test_hangul_names_the_compiler_that_it_needs():
    assert "kotex" in latex(named(["달은 왜 모양이 변해?"])).splitlines()[1]
    assert "xelatex" not in latex(named(["hybrid_light · auto – 95 %"]))  # prints as signs of mathematics


@given(st.lists(st.text(max_size=20), min_size=1, max_size=4))
def test_any_text_comes_back_from_csv(texts):
    header, *rows = read(as_csv(named(texts)))
    assert header == ["run", "v"]
    assert rows == [[defused(one), "0.5"] for one in texts]


@given(st.lists(st.floats(allow_nan=True, allow_infinity=False), min_size=1, max_size=4))
def test_any_number_comes_back_from_csv(values):
    table = Table("t", "c", [Column("v", "value"), Column("n", "count")], [[Number(v), Number(3)] for v in values])
    found = [float(row[0] or "nan") for row in read(as_csv(table))[1:]]
    assert all(a == b or (math.isnan(a) and math.isnan(b)) for a, b in zip(found, values, strict=True))


@given(st.lists(st.text(max_size=20) | st.sampled_from(HOSTILE), min_size=1, max_size=4))
def test_any_text_is_shown_by_markdown_as_it_is(texts):
    header, *rows = shown_rows(markdown(named([text or "x" for text in texts])))
    assert header == ["run", "v"]
    assert rows == [[visible(text or "x").strip(), "0.500"] for text in texts]


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


def test_several_tables_follow_each_other():
    assert rendered([TABLE, TABLE], "latex").count("\\begin{table}") == 2
    assert rendered([TABLE], "csv") == as_csv(TABLE)
    assert set(FORMATS) == {"markdown", "latex", "csv"}


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="LaTeX is not installed")
def test_hostile_tables_compile(tmp_path):
    both = rendered([TABLE, named(HOSTILE)], "latex")
    page = f"\\documentclass{{article}}\\usepackage{{booktabs,graphicx}}\\begin{{document}}\n{both}\\end{{document}}\n"
    (tmp_path / "page.tex").write_text(page, "utf-8")
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "page.pdf").stat().st_size > 1000
