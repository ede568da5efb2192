"""A typical hand-written sweep script, what `benchmark.py sweep baseline` compares with: one Hydra job per trial.

    python scripts/benchmarks/hand_written_sweep.py -m data=FOLDER qrels=FILE weight=0.1,0.2,0.3 threshold=4,5,6

BM25Okapi of rank_bm25 on kiwi's content morphemes and on character bigrams, fused by a weighted sum of min-max scores.
Queries whose best morpheme score is below the threshold get no documents. The score, modified MAP@3, is logged to
MLflow. The script is written with care: the tokens, the slow part of a first call, are cached in a pickle, and scores
are sorted by numpy. FOLDER holds documents.jsonl and eval.jsonl in the contest's layout. Runs are logged to baseline.db
in the working folder.
"""

import json
import pickle
import re
from dataclasses import dataclass
from pathlib import Path

import hydra
import mlflow
import numpy as np
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from omegaconf import MISSING
from rank_bm25 import BM25Okapi

TAGS = ("NN", "NR", "NP", "VV", "VA", "XR", "SL", "SN", "SH", "MA")


@dataclass
class Config:
    data: str = MISSING
    qrels: str = MISSING
    weight: float = 0.5  # weight of the morpheme scores, 0 to 1; the bigram scores have the rest
    threshold: float = 0.0
    top_k: int = 3
    tokens: str = "tokens.pkl"


ConfigStore.instance().store("baseline", Config)


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def tokenize(texts: list[str]) -> dict[str, list[list[str]]]:
    """Two token lists for each text: content morphemes, and character bigrams of its words."""
    from kiwipiepy import Kiwi

    morphemes = [[one.form.lower() for one in found if one.tag.startswith(TAGS)] for found in Kiwi().tokenize(texts)]
    words = [re.findall(r"\w+", text.lower()) for text in texts]
    bigrams = [[w[i : i + 2] for w in row for i in range(max(1, len(w) - 1))] for row in words]
    return {"morphemes": morphemes, "bigrams": bigrams}


def load_tokens(path: Path, texts: dict[str, list[str]]) -> dict[str, dict[str, list[list[str]]]]:
    if not path.exists():
        path.write_bytes(pickle.dumps({name: tokenize(some) for name, some in texts.items()}))
    return pickle.loads(path.read_bytes())


def min_max(scores: np.ndarray) -> np.ndarray:
    span = np.ptp(scores)
    return (scores - scores.min()) / span if span else np.zeros_like(scores)


def modified_map(returned: dict[str, list[str]], qrels: dict[str, list[str]], k: int = 3) -> float:
    """The contest's score: the mean precision at the hits; without relevant documents, 1 if none is shown."""
    total = 0.0
    for query, relevant in qrels.items():
        hits = [rank for rank, doc in enumerate(returned[query][:k], start=1) if doc in relevant]
        if relevant:
            total += sum(n / rank for n, rank in enumerate(hits, start=1)) / max(1, len(hits))
        else:
            total += not returned[query]
    return total / len(qrels)


@hydra.main(version_base="1.3", config_path=None, config_name="baseline")
def main(config: Config) -> float:
    documents, queries = (read(Path(config.data) / name) for name in ("documents.jsonl", "eval.jsonl"))
    qrels = {str(row["eval_id"]): row["relevant"] for row in read(Path(config.qrels))}
    texts = [" ".join(turn["content"] for turn in row["msg"] if turn["role"] == "user") for row in queries]
    tokens = load_tokens(Path(config.tokens), {"documents": [row["content"] for row in documents], "queries": texts})

    engines = {name: BM25Okapi(rows) for name, rows in tokens["documents"].items()}
    returned = {}
    for n, row in enumerate(queries):
        scores = {name: engine.get_scores(tokens["queries"][name][n]) for name, engine in engines.items()}
        fused = config.weight * min_max(scores["morphemes"]) + (1 - config.weight) * min_max(scores["bigrams"])
        best = np.argsort(-fused, kind="stable")[: config.top_k]
        keep = scores["morphemes"].max() >= config.threshold
        returned[str(row["eval_id"])] = [documents[i]["docid"] for i in best] if keep else []
    score = modified_map(returned, qrels)

    mlflow.set_tracking_uri(f"sqlite:///{Path('baseline.db').absolute()}")
    with mlflow.start_run():
        mlflow.log_params(dict(config))
        mlflow.log_metrics({"modified_map_at_3": score, "abstained": sum(not topk for topk in returned.values())})
        predictions = Path(HydraConfig.get().runtime.output_dir) / "predictions.jsonl"
        rows = [json.dumps({"eval_id": query, "topk": topk}) + "\n" for query, topk in returned.items()]
        predictions.write_text("".join(rows), "utf-8")
        mlflow.log_artifact(str(predictions))
    return score


if __name__ == "__main__":
    main()
