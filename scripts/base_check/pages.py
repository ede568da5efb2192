"""The documents that show commands: their files, commands that cannot run here, commands that need more than base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from measuring import ROOT

CONTEST = {f"data/{name}": name for name in ("documents.jsonl", "eval.jsonl", "qrels.jsonl")}
FILES = ("corrections/references.csv", "corrections/careful.csv", "corrections/eager.csv", "answers/references.json",
         "answers/first.json")  # fmt: skip
TASKS = {f"data/{name.partition('/')[2]}": name for name in FILES}
FUNCTION = """
import json
from pathlib import Path

TEXTS = [json.loads(line) for line in Path("data/documents.jsonl").read_text("utf-8").splitlines()]


def search(queries, k):
    return [sorted(((t["docid"], float(len({*q} & {*t["content"]}))) for t in TEXTS), key=lambda p: (-p[1], p[0]))[:k]
            for q in queries]
"""
KORQUAD = """
{"data": [{"title": "달", "paragraphs": [{"context": "달은 지구의 위성이다.", "qas": [
{"id": "q1", "question": "지구의 위성은?", "answers": [{"text": "달", "answer_start": 0}]}]}]}]}
"""
TREC = {
    "qrels.txt": "1 0 d1 1\n2 0 d2 1\n",
    "theirs.run": "1 Q0 d2 1 2.0 theirs\n1 Q0 d1 2 1.0 theirs\n2 Q0 d2 1 1.0 theirs\n",
    "ours.run": "1 Q0 d1 1 2.0 ours\n2 Q0 d2 1 1.0 ours\n",
}
INSTALLATION = "is the installation itself"
CLUSTER = "needs other machines"
UNDECIDED, REGRESSED = {"retriever=hybrid_lexical  ": 4}, {"tokenizer=whitespace": 3}  # checks of the sample


@dataclass(frozen=True)
class Page:
    """A document, and how its commands are run.

    files, texts: path in the working folder -> path in harness/sample, or its content.
    before: commands that the document presumes.
    fills: part of a command -> its replacement; `{chat}` and `{NAME}` are addresses of stand-ins.
    left_out: beginning of a command -> why it is not run.
    lacks: beginning of a command -> the extra that its one message must name.
    codes: part of a command -> its exit code, if this is neither 0 nor 2.
    commands: instead of the document's; "! " begins a command that must be refused.
    activated: whether `harness` is on the PATH.
    chains: heading -> commands that its section, and those up to the next heading named here, presume. Each chain runs
        in a separate folder, at the same time.
    """

    name: str
    files: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    before: Sequence[str] = ()
    fills: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    lacks: Mapping[str, str] = field(default_factory=dict)
    codes: Mapping[str, int] = field(default_factory=dict)
    commands: Sequence[str] = ()
    activated: bool = True
    chains: Mapping[str, Sequence[str]] = field(default_factory=dict)


INIT_HERE = "harness init dataset=contest dataset.path=data experiment_name=first"
INIT = ".venv/bin/harness init dataset=contest dataset.path=data experiment_name=first"
RUN = ".venv/bin/harness run"
README = Page(
    "README.md",
    files=CONTEST,
    left_out={"make run": INSTALLATION, "make test": "installs what the tests need"},
    activated=False,
    chains={
        "No labels?": (INIT,),
        "Which run is better?": (INIT, RUN, f"{RUN} retriever=hybrid_lexical"),
        "A submission": (INIT, RUN),
    },
)
RUN_POOLED = "harness run dataset=testset dataset.path=ts dataset.documents=outputs/documents experiment_name=pooled"
POOL = "harness testset pool testset=ts documents=outputs/documents experiment_name=pooled"
PAGES = (
    README,
    Page("docs/index.md", files=CONTEST),
    Page("docs/install.md", left_out={"make run": INSTALLATION, "pip install": INSTALLATION}),
    Page("docs/tutorials/first-run.md", left_out={"make run": INSTALLATION}),
    Page("docs/tutorials/own-files.md", files=CONTEST),
    Page("docs/tutorials/test-set.md"),
    Page("docs/tutorials/compare.md", files=CONTEST, texts=TREC, before=(INIT_HERE,)),
    Page("docs/tutorials/guard.md", codes=UNDECIDED | REGRESSED),
    Page(
        "docs/tutorials/sweep.md",
        files=CONTEST,
        before=(INIT_HERE,),
        fills={"search.trials=60": "search.trials=12"},
    ),
    Page("docs/tutorials/submit.md", files=CONTEST, before=(INIT_HERE,)),
    Page("docs/tasks.md", files=TASKS),
    Page(
        "docs/dense.md",
        files=CONTEST,
        texts={"model/config.json": "{}", "model/model.safetensors": ""},
        before=(INIT_HERE,),
        fills={"encoder.path=FOLDER": "encoder.path=model"},
        lacks={
            "harness run ... retriever=dense   ": "[dense]",
            "harness run ... retriever=dense encoder=local": "[dense]",
            "harness run ... retriever=hybrid   ": "[dense]",
            "harness run ... retriever=hybrid rerank": "[dense]",
            "harness run ... retriever=bge_m3_sparse": "[dense]",
        },
    ),
    Page("docs/explanation/out-of-fold.md"),
    Page("docs/explanation/intervals.md"),
    Page("docs/explanation/winners.md"),
    Page(
        "docs/explanation/labels.md",
        files={"ts": "testset"},
        before=("harness prepare", RUN_POOLED, f"{RUN_POOLED} retriever=hybrid_lexical", POOL),
    ),
    Page("docs/explanation/identity.md"),
    Page("docs/board.md"),
    Page("docs/check.md", before=("harness run",), codes=UNDECIDED | REGRESSED),
    Page("docs/watch.md", files={"today.jsonl": "eval.jsonl"}),
    Page("docs/slices.md"),
    Page(
        "docs/gates.md",
        files={f"new/{name}": name for name in ("documents.jsonl", "eval.jsonl")},
        left_out={"export OPENAI_API_KEY": "is a secret"},
    ),
    Page("docs/judgements.md", files={"ts": "testset"}),
    Page(
        "docs/llm.md",
        before=("harness prepare",),
        fills={"draft ... dry_run": "draft model=NAME dry_run"},
        left_out={"export OPENAI_API_KEY": "is a secret"},
    ),
    Page(
        "docs/own_retrievers.md",
        files=CONTEST,
        texts={"my_search.py": FUNCTION},
        before=(
            "harness run run_name=first",
            "harness export submission=mate.csv",
            "cp mate.csv second.csv",
            "cp outputs/runs/*/run.trec elastic.trec",
        ),
        fills={
            "https://search.example.org/articles/_search": "{elasticsearch}",
            "retriever=elasticsearch +": "retriever=elasticsearch retriever.elasticsearch.url={elasticsearch} +",
            "retriever.elasticsearch.url=...": "retriever.elasticsearch.url={elasticsearch}",
            "retriever.solr.url=...": "retriever.solr.url={solr}",
            "http://localhost:6333/collections/articles/points/query": "{qdrant}",
            "http://localhost:8000/search": "{fastapi}",
            "https://search.example.org/v2?q={query}&n={k}": "{get}?query={query}&k={k}",
            "https://search.example.org/v2": "{found}",
        },
        lacks={"harness run ... retriever=qdrant encoder=kure_v1": "[dense]"},
    ),
    Page("docs/load.md", fills={"http://localhost:8000/search": "{fastapi}"}),
    Page("docs/python.md"),
    Page(
        "docs/results.md",
        files={"science/documents.jsonl": "documents.jsonl", "science/eval.jsonl": "eval.jsonl"}
        | {"science/qrels_public.jsonl": "qrels.jsonl"},
        environment={"SCIENCE": "science"},
        fills={
            "gate.threshold=3,5,7,9": "gate.threshold=3,5,7,9 dry_run=true",  # 96 trials: only planned here
            "search.trials=96": "search.trials=96 dry_run=true",
        },
    ),
    Page(
        "docs/runs.md",
        files=CONTEST,
        texts={
            "KorQuAD.json": KORQUAD,
            "mine/dataset/korquad.yaml": "defaults: [squad, _self_]\npath: KorQuAD.json\n",
            "mine/dataset/cranfield.yaml": "defaults: [contest, _self_]\npath: data\n",
        },
        before=("harness run experiment_name=first",),
        left_out={
            "MLFLOW_TRACKING_URI=sqlite:": "serves until it is stopped",
            "curl": "asks the model that is served",
        },
    ),
    Page(
        "docs/scaling.md",
        lacks={
            "harness run retriever=dense cluster=ray": "[dense]",
            "harness run retriever=dense index=milvus": "[dense]",
            "harness sweep ... hydra/launcher=ray": "[ray]",
            "harness sweep ... hydra/launcher=submitit_slurm": "[slurm]",
            "harness run ... store.path=s3": "[s3]",
        },
        fills={"s3://BUCKET": "s3://bucket"},
        left_out={
            "pip install": INSTALLATION,
            "ray ": CLUSTER,
            "mlflow server": "serves until it is stopped",
            "export ": CLUSTER,
        },
    ),
    Page(
        "examples/README.md",
        files={"corpus": "profiles"},
        texts={f"examples/{path.name}": path.read_text("utf-8") for path in (ROOT / "examples").glob("*.py")},
        fills={"http://localhost:8000/v1": "{chat}"},
        left_out={"pip install": INSTALLATION},
    ),
    Page("docs/testsets.md", files={"corpus": "profiles"}, lacks={"chunk.unit=tokens": "[dense]"}),
    Page(
        "mistakes",
        files=CONTEST | {"corpus": "profiles", "ts": "testset"},
        texts={"corpus/broken.pdf": "no PDF"},
        commands=(
            "harness",
            "! harness init",
            "! harness compare",
            "! harness board",
            "! harness advise",
            "! harness power",
            "! harness export",
            "! harness reproduce",
            "! harness run experiment_name=x retreiver=bm25",
            "! harness run top_k 3",
            "! harness search why is the sky blue",
            "! harness export record submission=first.csv public=0.5",
            "! harness prepare files='corpus/*' output=docs",
            "! harness sweep dataset=chunked dataset.files='corpus/*' dataset.testset=ts dataset.chunk.size=200,400",
            "! harness testset pool testset=ts experiment_name=x",
            "! harness testset judge testset=ts model=NAME",
            "! harness testset audit testset=ts",
            "! harness run dataset=testset dataset.path=nowhere",
            "! harness run dataset=frozen dataset.path=ts",
            "harness run experiment_name=unlabelled dataset=contest dataset.documents=data/documents.jsonl"
            " dataset.queries=data/eval.jsonl",
            "! harness board experiment_name=unlabelled",
            "! harness advise experiment_name=unlabelled",
            "harness run experiment_name=by_map objective=map 'metrics=[map]'",
            "! harness compare experiment_name=by_map metric=ndcg@10",
            "! harness board experiment_name=by_map",
            "! harness runs experiment_name=by_mpa",
            "harness",
        ),
    ),
)
