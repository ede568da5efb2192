"""Published and reference values through the command line, on data next to the checkout (skipped without it)."""

import json
import re
from pathlib import Path

import pytest

from harness.measures.measures import parse_measure
from harness.tracking.tracker import mlflow_name

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT.parent / "shared" / "golden" / "ranking_metrics.json"
CASES = json.loads(GOLDEN.read_text("utf-8"))["cases"] if GOLDEN.exists() else []
QUIET = ("format=json", "tracking=none")
TREC_NAMES = {
    "bpref": "bpref", "infAP": "infap",
    "map": "map", "recip_rank": "mrr", "ndcg": "ndcg", "set_P": "precision", "set_recall": "recall",
    "set_F": "f1", "P": "precision", "recall": "recall", "ndcg_cut": "ndcg", "map_cut": "map", "success": "hit",
}  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{len(case['qrels'])} queries")
def test_reference_values(harness, tmp_path, case):
    rows = [{"eval_id": query, "relevant": grades} for query, grades in case["qrels"].items()]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in case["predictions"]))
    names = {parse_measure(re.sub(r"_at_(\d+)$", r"@\1", key)).name for key in case["expected"]}
    words = ("predictions=p.jsonl", "dataset=contest", "dataset.qrels=q.jsonl", f"metrics=[{','.join(names)}]")
    found = {mlflow_name(k): v for k, v in harness("score", *words, *QUIET).json["metrics"].items()}
    assert found == {key: pytest.approx(value, abs=1e-9) for key, value in case["expected"].items()}


@pytest.mark.parametrize(
    ("qrels", "run", "expected"),
    [
        ("trec_eval/qrels.test", "trec_eval/results.test", "trec_eval/out.test.a"),
        ("cranfield/qrels/as_evaluated.qrel", "cranfield/runs/standard_classic.run",
         "cranfield/runs/standard_classic.trec_eval"),
    ],
)  # fmt: skip
def test_trec_eval_to_its_last_digit(harness, real_data, qrels, run, expected):
    wanted = {}
    for line in (real_data / expected).read_text().splitlines():
        name, _, value = line.split()
        base, _, cutoff = name.rpartition("_")
        if name in TREC_NAMES:
            wanted[TREC_NAMES[name]] = float(value)
        elif base in TREC_NAMES and cutoff.isdigit():
            wanted[f"{TREC_NAMES[base]}@{cutoff}"] = float(value)
    assert len(wanted) > 10
    words = ("dataset=trec", f"dataset.qrels={real_data / qrels}", f"predictions={real_data / run}")
    found = harness("score", *words, f"metrics=[{','.join(wanted)}]", *QUIET).json["metrics"]
    found.pop("judged@3", None)  # every score on labels with grades of 0 has it; trec_eval has another one
    assert {name: f"{value:.4f}" for name, value in found.items()} == {k: f"{v:.4f}" for k, v in wanted.items()}


def test_real_submissions_come_out_in_the_order_of_the_leaderboard(harness, real_data):
    """The leaderboard's public MAP of the three: 0.7030, 0.7212, 0.7394. Its labels differ slightly from ours."""
    folder = real_data / "science_qa"
    scores = [
        harness(
            "score", f"predictions={folder}/submissions/lab3ir4_parksurk_{name}.jsonl", "dataset=contest",
            f"dataset.qrels={folder}/qrels_public.jsonl", *QUIET,
        ).json["metrics"]["modified_map@3"]
        for name in ("baseline", "exp02", "prompt01")
    ]  # fmt: skip
    assert scores == sorted(scores)
    assert scores[1] == pytest.approx(0.7212, abs=0.02)


@pytest.mark.slow
def test_bm25_on_the_contest_and_its_export(harness, real_data, tmp_path):
    folder = real_data / "science_qa"
    files = {"documents": "documents.jsonl", "queries": "eval.jsonl", "qrels": "qrels_public.jsonl"}
    words = [f"dataset.{key}={folder}/{name}" for key, name in files.items()]
    words += ["tokenizer=kiwi", "metrics=[modified_map@3]", "experiment_name=contest", "format=json"]
    found = harness("run", "dataset=contest", *words).json
    assert found["metrics"]["modified_map@3"] == pytest.approx(0.6091, abs=5e-5)
    assert (found["counts"]["scored"], found["counts"]["unlabelled"]) == (110, 110)
    sample = f"against={folder}/sample_submission.csv"
    exported = harness("export", "experiment_name=contest", "submission=s.csv", sample, "format=json").json
    assert exported["queries"] == 220


@pytest.mark.slow
def test_korquad_from_end_to_end(harness, real_data):
    path = f"dataset.path={real_data / 'korquad' / 'KorQuAD_v1.0_dev.json'}"
    found = harness("run", "dataset=squad", path, "tokenizer=word", "metrics=[mrr@10]", "objective=mrr@10", *QUIET).json
    assert found["counts"]["scored"] == 5774
    assert found["metrics"]["mrr@10"] > 0.7
