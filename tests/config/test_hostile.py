"""Overrides that cannot be meant end in a message: exit code 2, no traceback, nothing written, and soon."""

import pytest

from harness import cli

BIG, DIGITS, HALF, LONG = "9" * 20, "9" * 5000, "\udc80", "x" * 5000
GROUPS = [
    "dataset",
    "encoder",
    "fusion",
    "gate",
    "index",
    "llm",
    "rerank",
    "retriever",
    "task",
    "tokenizer",
    "tracking",
]
WORDS = [
    "+=1 @x=1 ++=1 ~=1 = .=1 +@x=1 a..b=1 top_k=[ top_k={ top_k=[1,2 query=5 query=null store=5 prune=5 x=1 +x=1",
    "++x=1 +top_k=3 ~top_k ~metrics ~query ~query.text ~store ~dataset ~gate +query.x=1 +dataset.x=1 +gate.x.y.z=1",
    "top_k=1,2 top_k=range(1,3) top_k=interval(1,2) top_k=${nothing} top_k=${top_k} run_name=??? run_name=${x:y}",
    "experiment=5 experiment=nothing experiment=../run gate=/etc/passwd gate=a/../b +gate/x=1 gate@x=none +x@y=1",
    "gate=[] retriever.bm25=5 retriever.bm25=null +retriever.x=5 +retriever.x=null retriever.bm25.runtime=5",
    "retriever.bm25.tokenizer=null retriever.bm25.tokenizer=word retriever.bm25.tokenizer=5 retriever.bm25.runtime=x",
    "gate._target_=harness.tracking.mlflow_tracker.MlflowTracker tokenizer._target_=harness.data.contest.Sample",
    "gate._target_=harness.gates.gate.Decision gate._target_=gate/nothing retriever.bm25._target_=5 gate._target_=",
    "tokenizer._target_=dataset/sample tracking._target_=gate/none rerank._target_=retrievers.lexical.tokenize.Word",
    "dataset._target_=harness.storage.cache.Cache fusion._target_=rerank/none rerank._target_=measure/bertscore",
    f"top_k={BIG} top_k={DIGITS} depth={BIG} depth={DIGITS} top_k=2147483648 top_k=1e3 top_k=null top_k=true top_k=[3]",
    f"metrics=[ndcg@{BIG}] metrics=[ndcg@{DIGITS}] metrics=[ndcg@-1] metrics=5 metrics=[5] metrics=[null] objective=5",
    f"objective=ndcg@{BIG} public=1e308 public=-0.1 public=null public=inf seed={BIG} seed=-1 seed=1.5 format=5",
    "tokenizer.runtime.workers=99999 tokenizer.runtime.workers=0 tokenizer.tags=[] tokenizer.tags=5 tokenizer.tags=[5]",
    f"retriever.bm25.k1=1e308 retriever.bm25.k1=nan retriever.bm25.b=-1 retriever.bm25.runtime.threads={BIG}",
    "retriever.bm25.delta=1e308 retriever.bm25.epsilon=-1 retriever.bm25.engine=5 retriever.bm25.variant=null",
    f"experiment_name={HALF} run_name={HALF} outputs={HALF} store.path={HALF} experiment_name={LONG} run_name={LONG}",
    f"outputs={LONG} outputs=a/{LONG}/b store.path={LONG} outputs=/proc/x store.path=/proc/x outputs=/dev/null",
    "experiment_name=a\0b run_name=a\nb run_name=a\x1b[31m outputs=a\0b store.path=a\0b experiment_name= outputs=",
    "tracking.detail=x select_on=5 query.text=5 query.file=5 fusion.weights=5 fusion.normalise=5",
    "llm.request=5 llm.replies=xml top_k={a:1} +retriever.5={_target_:retriever/bm25}",
]
BESIDE = {  # overrides that are valid -> others that are not
    "gate=score": f"gate.threshold=1e308 gate.threshold=-1e308 gate.k={BIG}",
    "gate=auto": f"gate.folds={BIG} gate.repeats={BIG} gate.signals=5",
    "gate=depth": "gate.k=-5",
    "gate=classifier": "gate.embedding=5",
    "gate=fitted": "gate.file=/dev/zero",
    "gate=llm llm.model=m": f"llm.runtime.timeout=1e308 llm.runtime.retries={BIG} llm.runtime.parallel={BIG} "
    f"gate.request=5 llm.price.input=-1 llm.price.output={BIG} llm.price=5",
    "tokenizer=char_ngram": f"tokenizer.high={BIG}",
    f"tokenizer=char_ngram tokenizer.low={BIG}": f"tokenizer.high={BIG}",
    "tokenizer=snowball": "tokenizer.stop_words=5",
    "fusion=rrf": f"fusion.k={BIG}",
    "retriever=hybrid_lexical": "fusion.weights.bm25=1e308 fusion.weights.bm25=x",
    "retriever=dense": "retriever.dense.encoder=null retriever.dense.index=5 "
    "retriever.dense.encoder={_target_:index/flat}",
    "retriever=dense encoder=lsa": f"encoder.dimensions={BIG} encoder.seed={BIG}",
    "retriever=dense encoder=lsa index=hnsw": f"index.m={BIG}",
    "retriever=dense encoder=lsa index=ivf_pq": "index.bits=99",
    "rerank=cross_encoder": f"rerank.depth={BIG} rerank.max_length={BIG} rerank.runtime.batch_tokens={BIG}",
    "dataset=contest": f"dataset.path={LONG} dataset.path={HALF} dataset.path=a\0b dataset.documents=/dev/zero",
    "top_k=2147483648": "depth=2147483648",
}
CASES = [[word] for line in WORDS for word in line.split(" ")]
CASES += [[*valid.split(" "), word] for valid, words in BESIDE.items() for word in words.split(" ")]
CASES += [[f"{group}={value}"] for group in GROUPS for value in ("null", "5")]
SLOW = [[pytest.mark.slow] if i % 3 else [] for i in range(len(CASES))]  # one of three is tried in the fast part


@pytest.mark.slow
@pytest.mark.parametrize("words", [pytest.param(case, marks=marks) for case, marks in zip(CASES, SLOW, strict=True)])
def test_a_hostile_override_ends_in_a_message(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = cli.call("run", [*words, *([] if "tracking" in words[0] else ["tracking=none"])])
    captured = capsys.readouterr()
    assert code == 2, captured.err[-500:]
    assert "Traceback" not in captured.err
    assert captured.err.strip()
    assert captured.out == ""
    assert not list(tmp_path.rglob("*.unfinished"))
    assert not (tmp_path / "outputs" / "runs").exists()
