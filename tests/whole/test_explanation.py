"""The explanations show figures that `scripts/draw_figures.py` draws, and quote the numbers of these figures."""

import re

import draw_figures
import pytest

DOCS = draw_figures.ROOT / "docs"


def test_each_explanation_shows_its_figure_and_says_what_it_shows_in_both_languages():
    pages = {f"{name}{suffix}" for name in draw_figures.FIGURES for suffix in (".md", ".ko.md")}
    assert {page.name for page in DOCS.glob("explanation/*.md")} == pages
    for name in pages:
        page = (DOCS / "explanation" / name).read_text("utf-8")
        [(told, picture)] = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", page)
        assert picture == f"../pictures/{name.partition('.')[0]}.svg"
        assert len(told) > 60, name
        assert bool(re.search("[가-힣]", told)) == (".ko." in name)
    for name in draw_figures.FIGURES:
        assert (DOCS / "pictures" / f"{name}.svg").stat().st_size < 60_000


@pytest.mark.drawn
def test_a_figure_is_drawn_again_and_a_page_with_another_number_is_named(tmp_path, monkeypatch, capsys):
    assert draw_figures.draw("labels", tmp_path) == []
    assert (tmp_path / "labels.svg").read_text("utf-8").count("<path") > 36
    (tmp_path / "docs" / "pictures").mkdir(parents=True)
    (tmp_path / "docs" / "explanation").mkdir()
    for name, number in (("labels.md", "0.91"), ("labels.ko.md", "0.90")):
        page = (DOCS / "explanation" / name).read_text("utf-8")
        (tmp_path / "docs" / "explanation" / name).write_text(page.replace("0.90", number), "utf-8")
    monkeypatch.setattr(draw_figures, "ROOT", tmp_path)
    assert draw_figures.main("labels") == 1
    assert capsys.readouterr().err == "docs/explanation/labels.md lacks 0.90.\n"
