"""Scores of the leaderboard beside our own: recorded, logged on the run, compared."""

import io
from dataclasses import replace
from math import nan
from pathlib import Path

import pytest
from logged_runs import RUN
from rich.console import Console

from harness.commands.export.history import Agreement, History, HistoryRow, history_report, submissions_table
from harness.commands.export.ledger import Export, LeaderboardAnswer, Ledger, LedgerLine
from harness.reports.report import show_report
from harness.reports.tables import csv, markdown

RECORD = ("export record", "submission=best.csv")
BY = "modified_map_at_3"


@pytest.fixture
def submitted(harness, logged):
    """One run, exported to best.csv; it is right everywhere."""
    logged(RUN)
    return harness("export", "experiment_name=e", "submission=best.csv", "format=json").json


@pytest.mark.slow
def test_an_answer_is_recorded_in_the_ledger_and_on_the_run(harness, submitted, tmp_path, tracker):
    found = harness(*RECORD, "public=0.81", "format=json").json
    assert (found["number"], found["run_id"], found["sha256"]) == (1, submitted["run_id"], submitted["sha256"])
    assert (found["public"], found["private"], found["local"], found["replaced"]) == (0.81, None, 1.0, {})
    assert found["drift"] == {"public": pytest.approx(-0.19), "private": None}

    # Another part is added, another score for the same part takes its place, the same score changes nothing; a file
    # that was moved is known by its content.
    (tmp_path / "best.csv").rename(tmp_path / "moved.csv")
    moved, ledger = ("export record", "submission=moved.csv", "format=json"), tmp_path / "outputs/submissions"
    assert harness(*moved, "private=0.75").json["replaced"] == {}
    assert harness(*moved, "public=0.82", "private=0.75").json["replaced"] == {"public": 0.81}
    lines = (ledger / "ledger.jsonl").read_text("utf-8")
    assert harness(*moved, "public=0.82").json["replaced"] == {}
    assert (ledger / "ledger.jsonl").read_text("utf-8") == lines
    run = tracker.run(submitted["run_id"])
    assert (run.metrics["leaderboard/public"], run.metrics["leaderboard/private"]) == (0.82, 0.75)
    assert run.tags["submission.sha256"] == submitted["sha256"]
    [row] = harness("export history", "format=json").json["submissions"]
    assert (row["file"], row["state"]) == (str(tmp_path / "moved.csv"), "unchanged")

    said = harness(*moved[:2], "public=0.7").out
    assert "leaderboard, public part: 0.7000, here 1.0000 (modified_map@3, in sample): drift -0.3000" in said
    assert "The previous public score, 0.8200, is replaced." in said

    tracker.client.delete_run(submitted["run_id"])
    done = harness(*moved, "public=0.9")
    assert done.json["public"] == 0.9
    assert "its run could not be updated" in done.err
    assert harness("export history", "format=json").json["submissions"][0]["public"] == 0.9


def test_a_changed_file_is_refused(harness, submitted, tmp_path):
    """In its place, and when it was moved with its provenance; a file that was never exported is another matter."""
    with (tmp_path / "best.csv").open("a") as file:
        file.write("\n")
    refused = [harness(*RECORD, "public=0.5").refusal]
    for name in ("best.csv", "best.csv.provenance.json"):
        (tmp_path / name).rename(tmp_path / f"moved-{name}")
    refused.append(harness("export record", "submission=moved-best.csv", "public=0.5").refusal)
    for said in refused:
        assert "has changed since it was exported as submission 1" in said
        assert submitted["run_id"] in said
    (tmp_path / "moved-best.csv").rename(tmp_path / "other.csv")
    said = harness("export record", "submission=other.csv", "public=0.5").refusal
    assert "was not exported to this outputs folder" in said


def test_a_score_in_percent_is_asked_about(harness, submitted, tracker):
    """And recorded as a fraction, so that the drift has one scale, where it is meant."""
    for words, expected in {
        ("public=81",): "public=81 is above 1, the greatest value of modified_map@3: did you mean 0.81? If",
        ("public=0.8", "private=1.5"): "private=1.5 is above 1, the greatest value of modified_map@3: did you mean",
        ("public=-0.1",): "public=-0.1 is below 0, the least value of modified_map@3.",
        ("public=810",): "public=810 is above 1, the greatest value of modified_map@3.",
        ("public=810", "scale=percent"): "above 100, the greatest value of modified_map@3 in percent.",
        ("public=81", "scale=percents"): "Did you mean 'percent'?",
    }.items():
        assert expected in harness(*RECORD, *words).refusal
    assert harness("export history", "format=json").json["submissions"][0]["public"] is None
    found = harness(*RECORD, "public=81", "scale=percent", "format=json").json
    assert (found["public"], found["drift"]["public"]) == (0.81, pytest.approx(-0.19))
    assert tracker.run(submitted["run_id"]).metrics["leaderboard/public"] == 0.81


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("submission=best.csv",), "Nothing to record"),
        (("submission=best.csv", "public=nan"), "not a finite number"),
        (("submission=nope.csv", "public=1"), "no such file"),
        (("submission=.", "public=1"), "no such file"),
    ],
)
def test_what_is_no_answer_is_refused(harness, words, expected):
    assert expected in harness("export record", *words).refusal


def row(number=1, local=nan, public=nan, *, low=nan, high=nan, kind=None, private=nan, name="bm25"):
    first = Export("2026-07-01T12:30:00.1", "", "/a/b.csv", "3f2a91bc" * 4, name, "e", "map@3")
    ours = (local, low, high, kind, nan)
    return HistoryRow(number, first, [], first.file, "changed", *ours, {"public": public, "private": private})


def test_agreement_by_hand():
    """Here 1 > 2 > 3, there 2 > 1 > 3: of three pairs one is swapped, so tau = (2 − 1) / 3."""
    rows = [row(1, 0.70, 0.80), row(2, 0.65, 0.82), row(3, 0.60, 0.75), row(4, 0.9, nan), row(5, nan, 0.9)]
    found = Agreement.of(rows, "public")
    assert (found.submissions, found.pairs, found.swapped) == (3, 3, [(1, 2)])
    assert found.tau == pytest.approx(1 / 3)
    # 0.10, 0.17, 0.15
    assert found.drift == pytest.approx({"mean": 0.14, "least": 0.10, "greatest": 0.17})


@pytest.mark.parametrize(
    ("scores", "tau", "swapped"),
    [
        ([], None, []),
        ([(0.5, 0.4)], None, []),
        ([(0.5, 0.4), (0.4, 0.5)], None, [(1, 2)]),  # two submissions are no order to speak of
        ([(0.4, 0.5), (0.5, 0.4)], None, [(2, 1)]),  # named by the one that is better here
        ([(0.4, 0.5), (0.5, 0.5), (0.6, 0.5)], None, []),  # all equal there: undefined
        ([(0.5, 0.4), (0.5, 0.5), (0.5, 0.6)], None, []),  # and here
        ([(0.4, 0.5), (0.5, 0.6), (0.6, 0.7)], 1.0, []),
        ([(0.6, 0.5), (0.5, 0.6), (0.4, 0.7)], -1.0, [(1, 2), (1, 3), (2, 3)]),
    ],
)
def test_few_or_equal_scores(scores, tau, swapped):
    found = Agreement.of([row(n, *pair) for n, pair in enumerate(scores, start=1)], "public")
    assert (found.tau, found.swapped, found.submissions) == (tau, swapped, len(scores))
    assert (found.drift is None) == (not scores)


def write_ledger(tmp_path, *entries):
    """A ledger of exports (numbers of a run, other fields) with their answers; each file lies where it was written."""
    folder = tmp_path / "outputs/submissions"
    folder.mkdir(parents=True)
    ledger = Ledger(folder)
    for n, (numbers, answers, changes) in enumerate(entries, start=1):
        time, file, sha256 = f"2026-07-0{n}T10:20:30.000000+00:00", str(folder / f"{n}.csv"), f"{n:064x}"
        value = numbers.get(f"oof/{BY}", numbers.get(BY))
        export = Export(
            time, sha256, file, f"{n}" * 32, f"런 {n}", "e", "modified_map@3", "k", "q", value, metrics=numbers
        )
        with ledger.locked():
            ledger._add(LedgerLine(export=replace(export, **changes)))
            if answers:
                ledger._add(LedgerLine(answer=LeaderboardAnswer(time, sha256, file, **answers)))


FITTED = {BY: 0.9, f"oof/{BY}": 0.7, f"public/{BY}": 0.95, f"oof/public/{BY}": 0.72}
FITTED |= {f"interval_low/{BY}": 0.8, f"oof/interval_low/{BY}": 0.6, f"oof/interval_high/{BY}": 0.8}


def test_history_sets_the_honest_score_against_the_leaderboards(harness, tmp_path):
    """A fitted run counts with what it scores out of fold; a run without the measure, or on other queries, not."""
    write_ledger(
        tmp_path,
        (FITTED, {"public": 0.75}, {}),
        ({BY: 0.8}, {"public": 0.74, "private": 0.73}, {}),
        ({}, {"public": 0.1}, {}),
        ({BY: 0.99}, {"public": 0.2}, {"queries": "other"}),
        ({BY: 0.5}, {}, {}),
    )
    found = harness("export history", "format=json").json
    first, second, third, fourth, fifth = found["submissions"]
    assert (first["local"], first["local_kind"], first["state"]) == (0.7, "out of fold", "missing")
    assert (first["local_low"], first["local_high"], first["local_public"]) == (0.6, 0.8, 0.72)
    assert (second["local"], second["local_low"], second["drift"]["private"]) == (0.8, None, pytest.approx(-0.07))
    assert third["local"] is third["drift"]["public"] is fourth["local"] is fifth["public"] is None
    public = found["agreement"]["public"]
    assert (public["submissions"], public["swapped"], public["tau"]) == (2, [[2, 1]], None)
    assert public["drift"]["mean"] == pytest.approx((0.05 - 0.06) / 2)
    assert found["agreement"]["private"]["submissions"] == 1
    assert Path(found["picture"]).read_bytes().startswith(b"\x89PNG")

    said = harness("export history").out
    assert "2 is above 1 here (0.8000 > 0.7000) and below it there (0.7400 < 0.7500)" in said
    assert "The leaderboard ranks 1 of 1 pairs in the opposite order." in said
    assert "mean -0.0050, from -0.0600 to +0.0500" in said


def test_history_with_little_to_tell(harness, tmp_path):
    done = harness("export history", "format=json")
    assert done.json["submissions"] == []
    assert done.json["picture"] is done.json["metric"] is None
    assert "No submissions yet" in harness("export history").out
    write_ledger(tmp_path, ({BY: 0.8}, {}, {}))
    done = harness("export history")
    assert "No leaderboard scores yet. Record one: harness export record submission=FILE public=SCORE" in done.out
    assert not (tmp_path / "outputs/submissions/history.png").exists()


def test_a_narrow_terminal_breaks_words_and_no_number():
    ours = row(12, 0.75, 0.8111, low=0.7, high=0.8, kind="public, out of fold", private=0.7999)
    agreement = {part: Agreement.of([], part) for part in ("public", "private")}
    found = History(Path("ledger"), "map@3", [replace(ours, local_public=0.7512)], agreement)
    show_report(Console(width=80, file=(file := io.StringIO())), history_report(found))
    for shown in ("0.7500", "0.700 – 0.800", "0.7512", "0.8111", "+0.0611", "0.7999", "+0.0499"):
        assert shown in file.getvalue()
    assert "…" not in file.getvalue()
    assert max(map(len, file.getvalue().splitlines())) <= 80


def test_the_history_as_a_table():
    rows = [row(1, 0.75, 0.81, low=0.7, high=0.8, kind="out of fold", name="=bm25")]
    table = submissions_table(History(Path("ledger"), "map@3", rows, {}))
    assert csv(table) == (
        "submission,exported (UTC),run,run_id,kind,here,here_low,here_high,own public,public,public drift,private,"
        "private drift\n"
        "1,2026-07-01 12:30,'=bm25,3f2a91bc,out of fold,0.75,0.7,0.8,,0.81,0.06000000000000005,,\n"
    )
    assert markdown(table).startswith("**1 submission by map@3, 95 % intervals in brackets**\n")
    none = submissions_table(History(Path("ledger"), None, [], {}))
    assert markdown(none).startswith("**0 submissions**\n")
