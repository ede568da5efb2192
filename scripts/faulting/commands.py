"""The commands to disturb, and the numbers that all undisturbed runs of each have in common."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass

from measuring import SAMPLE, minilm

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
PREPARED = (  # commands that turn an empty folder into a used one
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
    """words: of the command line. numbers: keys of its JSON document that are alike in every undisturbed run.

    used: whether it needs a used folder. server: whether it makes new runs on a server.
    resumes: whether it goes on from encoded or read documents that an interrupted one has left.
    """

    words: list[str]
    numbers: tuple[str, ...]
    used: bool = False
    server: bool = False
    resumes: bool = False


def _new(words: list[str], *numbers: str, resumes: bool = False) -> Command:
    return Command(words, numbers, server=True, resumes=resumes)


def _later(words: list[str], *numbers: str) -> Command:
    return Command(words, numbers, used=True)


MINI = minilm() if importlib.util.find_spec("faiss") else None
SCORED, COUNTED = ("metrics", "losses"), ("metrics", "losses", "counts")
FIRST = "experiment_name=e"
COMMANDS = {
    "run": _new([*RUN, "gate=auto"], *COUNTED, "out_of_fold"),
    "hybrid": _new([*RUN, "retriever=hybrid", "encoder=lsa", "trace=errors"], *SCORED, "traces"),
    "sweep": _new(SWEEP, "objective", "best"),
    "joblib": _new(
        [*SWEEP, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "trials_per_job=2"], "objective", "best"
    ),
    "study": _new(
        ["sweep", "tokenizer=word", "search=random", "search.trials=4", "gate=score", "gate.threshold=interval(0,5)"],
        *("objective", "best"),
    ),
    "score": _later(["score", "predictions=best.csv", "experiment_name=f"], *SCORED),
    "search": Command(["search", "query=달은 왜 모양이 변해?", "tokenizer=word"], ("documents", "retrieve")),
    "compare": _later(["compare", FIRST], "verdicts", "queries"),
    "export": _later(["export", FIRST, "submission=again.csv"], "sha256", "value"),
    "model": _later(["export", FIRST, "submission=m.csv", "model=true"], "sha256", "value"),
    "record": _later(["export record", "submission=best.csv", "public=0.5"], "local", "public", "drift"),
    "reproduce": _later(["reproduce", FIRST], "reproduced", "wrong", "predictions"),
    "cache": Command(["doctor cache", "prune.keep_gb=1"], ("damaged", "foreign")),
    "corrections": _new(["score", f"predictions={SAMPLE}/corrections/careful.csv", *CORRECTIONS], "metrics", "counts"),
    "answers": _new(
        ["score", f"predictions={SAMPLE}/answers/first.json", "task=answers", *ANSWERS], "metrics", "counts"
    ),
    "prepare": Command(PREPARE, ("documents", "spans", "characters", "near_duplicates"), resumes=True),
    "draft": _later([*DRAFT, "limit=null"], "queries", "kinds", "rejected"),
    "pool": _later(POOL, "queries", "pairs", "origins", "per_query"),
    "judge": _later(JUDGE, "left"),
    "freeze": _later(["testset freeze", "testset=judged", "leave_out=true"], "sha256", "counts"),
    "board": _later(["board", FIRST], "rows", "recommended"),
    "advise": _later(["advise", FIRST], "value", "ceilings", "places"),
    "power": _later(["power", FIRST], "p", "queries_needed", "wins", "losses"),
    "auto": _new(["sweep", "sweep=auto", "budget=4s", "experiment_name=a"]),  # chosen by time
    "sharded": _new([*RUN, "cluster.shard=30", "gate=score"], *COUNTED, resumes=True),
    "chunked": _new(
        ["run", "dataset=chunked", "dataset.chunk.size=200", "tokenizer=word", "experiment_name=c"],
        *COUNTED, resumes=True,
    ),
    "files": _later(
        ["compare", "runs=[a.run,b.run]", "dataset=trec", "dataset.qrels=qrels.txt", "metric=map"],
        *("verdicts", "queries"),
    ),
    "remote": _new(
        [*RUN, "retriever=fastapi", f"retriever.fastapi.url={SEARCH_SERVICE}", "retriever.fastapi.runtime.parallel=2"],
        *COUNTED,
    ),
    "standings": _later(["compare", "task=corrections"], "verdicts"),
    **({"dense": _new(["run", "retriever=dense", "index=hnsw", "encoder=local", f"encoder.path={MINI}"], *SCORED,
                      resumes=True)} if MINI else {}),
}  # fmt: skip
