"""The explanations show figures that `scripts/draw_figures.py` draws, and quote the numbers of these figures."""

import re

import draw_figures
import pytest

DOCS = draw_figures.ROOT / "docs"


def test_each_explanation_shows_its_figure_and_says_what_it_shows():
    assert {page.stem for page in DOCS.glob("explanation/*.md")} == {*draw_figures.FIGURES}
    for name in draw_figures.FIGURES:
        page = (DOCS / "explanation" / f"{name}.md").read_text("utf-8")
        [(told, picture)] = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", page)
        assert picture == f"../pictures/{name}.svg"
        assert len(told) > 60, name
        assert (DOCS / "pictures" / f"{name}.svg").stat().st_size < 60_000


@pytest.mark.drawn
def test_a_figure_is_drawn_again_and_a_page_with_another_number_is_named(tmp_path, monkeypatch, capsys):
    assert draw_figures.draw("labels", tmp_path) == []
    assert (tmp_path / "labels.svg").read_text("utf-8").count("<path") > 36
    (tmp_path / "docs" / "pictures").mkdir(parents=True)
    (tmp_path / "docs" / "explanation").mkdir()
    page = (DOCS / "explanation" / "labels.md").read_text("utf-8")
    (tmp_path / "docs" / "explanation" / "labels.md").write_text(page.replace("0.90", "0.91"), "utf-8")
    monkeypatch.setattr(draw_figures, "ROOT", tmp_path)
    assert draw_figures.main("labels") == 1
    assert "labels.md lacks 0.90." in capsys.readouterr().err
