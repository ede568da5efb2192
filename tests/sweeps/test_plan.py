"""The plan of a sweep: configs as Hydra composes them, what each trial needs, and which trials share a job."""

import dataclasses
import itertools
import json
import shutil

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException

from harness.config import composing
from harness.config.places import conf_folder
from harness.errors import BadInput
from harness.experiment.plan import Plan
from harness.recording import retrieval_run
from harness.sweeps import plan
from harness.sweeps.plan import Planner, Trial


@pytest.fixture
def model(toy):
    """A folder that looks like a model: nothing loads it, its files' checksums are its identity."""
    folder = toy.parent / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text("weights")


TOY = ("dataset=contest", "dataset.path=toy", "tokenizer=char_ngram")


@pytest.fixture
def planner(toy, monkeypatch):
    """planner(*fixed) -> a Planner for the toy data, in its folder."""
    monkeypatch.chdir(toy.parent)
    return lambda *fixed: Planner(composing.composer("sweep"), [*TOY, *fixed])


RERANKED = ("rerank=cross_encoder", "rerank.model=null", "rerank.revision=null", "rerank.path=model",
            "rerank.dtype=float32")  # fmt: skip
HYBRID = ("retriever=hybrid_lexical", "gate=score", "gate.source=bm25")
LSA = ("retriever=dense", "encoder=lsa")
LLM = ("gate=llm", "llm.model=m", "llm.base_url=http://127.0.0.1:9")
FREE = {
    HYBRID: ["gate.threshold=3", "gate.signal=margin", "gate.source=bigram", "fusion=rrf", "fusion.normalise=rank",
             "fusion.weights.bm25=0.5"],
    (*HYBRID, "fusion=rrf"): ["fusion.k=10"],
    RERANKED: ["rerank.depth=2"],  # pairs are scored alike, each once
    (): ["gate=score", "top_k=1", "metrics=[modified_map@3]", "objective=mrr", "seed=1", "public=0.5",
         "depth=7"],  # the greatest depth of all trials is retrieved
}  # fmt: skip
EXPENSIVE = {
    (): ["retriever.bm25.k1=0.9", "retriever.bm25.variant=okapi", "tokenizer=word", "tokenizer.low=1",
         "query.text=last", "dataset.path=other", "dataset.qrels=labels.jsonl", RERANKED],
    ("retriever.bm25.variant=okapi",): ["retriever.bm25.engine=rank_bm25"],
    ("tokenizer.low=1",): ["retriever=hybrid_lexical"],
    LSA: ["encoder.low=1", "index=hnsw"],
    (*LSA, "index=hnsw"): ["index.ef_search=300"],
    RERANKED: ["rerank.max_length=32"],
}  # fmt: skip
# Paths, runtime and formats; components that one BM25 does not use; the same data elsewhere; a stated default.
WITHOUT_EFFECT = ["outputs=elsewhere", "store.path=elsewhere", "format=json", "experiment_name=other", "run_name=mine",
                  "tracking=none", "fusion=rrf", "fusion.normalise=rank", "encoder=lsa", "index=hnsw",
                  "dataset.path=copy", "retriever.bm25.runtime.threads=1", "query.text=last", "search=tpe",
                  "objectives=[modified_map@3]", "retriever.bm25.delta=null", "top_k=3"]  # fmt: skip


def test_what_follows_the_retrieval_is_free_and_what_changes_no_result_changes_no_key(planner, toy, model):
    shutil.copytree(toy, toy.parent / "copy")
    for fixed, words in FREE.items():
        plans = planner(*fixed)
        plain = plans.trial(0, ())
        same = () if fixed else WITHOUT_EFFECT
        for word in (*words, *same):
            other = plans.trial(1, (word,))
            assert (other.error, other.job_key, other.key == plain.key) == (None, plain.job_key, word in same), word


@pytest.mark.slow
def test_what_decides_a_retrieval_or_a_reranking_is_expensive(planner, toy, model):
    other = toy.parent / "other"
    shutil.copytree(toy, other)
    for name, before, after in (("documents.jsonl", "지구의", "화성의"), ("qrels.jsonl", '"d1": 1', '"d1": 3')):
        (other / name).write_text((other / name).read_text("utf-8").replace(before, after), "utf-8")
    shutil.copyfile(other / "qrels.jsonl", toy.parent / "labels.jsonl")
    row = {"eval_id": 7, "msg": [{"role": "user", "content": text} for text in ("달이 뭐야?", "모양은 왜 변해?")]}
    rest = (toy / "eval.jsonl").read_text("utf-8").splitlines()[1:]
    (toy / "eval.jsonl").write_text("\n".join([json.dumps(row, ensure_ascii=False), *rest]), "utf-8")
    for fixed, changes in EXPENSIVE.items():
        plans = planner(*fixed)
        plain = plans.trial(0, ())
        for one in changes:
            words = (one,) if isinstance(one, str) else one
            changed = plans.trial(1, words)
            assert changed.error is None, words
            assert {plain.job_key, plain.key}.isdisjoint({changed.job_key, changed.key}), words
            retrieves_anew = not words[0].startswith(("rerank", "dataset.qrels"))
            assert bool(set(changed.ranking_keys) - set(plain.ranking_keys)) == retrieves_anew, words


SWEEPS = {one.stem: yaml.safe_load(one.read_text("utf-8")) for one in conf_folder().glob("sweep/*.yaml")}


@pytest.mark.parametrize("name", [name for name, recipe in SWEEPS.items() if "hydra" in recipe])
def test_the_trials_of_a_shipped_sweep_do_not_depend_on_earlier_trials(planner, name):
    axes = SWEEPS[name]["hydra"]["sweeper"]["params"]
    values = {key: list(map(str, OverridesParser.create().parse_override(f"{key}={some}").sweep_iterator()))
              for key, some in axes.items()}  # fmt: skip
    points = [tuple(f"{key}={one}" for key, one in zip(axes, point, strict=True)) for point in
              itertools.product(*values.values())]  # fmt: skip
    several = planner(f"sweep={name}")
    for number, point in enumerate(points[-3:]):  # few, since Hydra composes each tokenizer and retriever anew
        found, expected = several.trial(number, point), planner(f"sweep={name}").trial(number, point)
        assert repr(found.plan.document) == repr(expected.plan.document)
        assert dataclasses.replace(found, plan=None) == dataclasses.replace(expected, plan=None)
        assert found.error is None


def test_parts_that_were_accepted_are_still_refused_together(planner):
    plans = planner("gate=score", "retriever=hybrid_lexical", "gate.source=bm25")
    for words in (["depth=1", "top_k=1"], ["depth=5", "top_k=3"]):
        assert plans.trial(0, words).error is None
    assert "depth=1 is less than top_k=3" in str(plans.trial(1, ["depth=1", "top_k=3"]).error)
    address = "tracking.uri=http://user:secret@host"
    assert plans.trial(3, [address]).error is None
    assert "tracking.uri, which may hold a secret" in str(
        plans.trial(4, [address, "run_name=http://user:secret@host"]).error
    )


@pytest.mark.parametrize(
    ("fixed", "words", "same"),
    [
        ((), ["select_on=all", "select_on=public"], False),
        (("gate=score",), ["gate.signal=coverage", "gate.signal=background"], False),
        (LSA, ["tokenizer=word", "tokenizer=whitespace"], True),  # nothing reads tokens
        ((*LSA, "gate=score", "gate.signal=coverage"), ["tokenizer=word", "tokenizer=whitespace"], False),
        (("gate=classifier", "encoder=lsa"), ["encoder.dimensions=1", "encoder.dimensions=2"], True),
        (("gate=classifier", "gate.embedding=true", "encoder=lsa"), ["encoder.low=1", "encoder.low=2"], False),
        (("gate=fitted",), ["gate.file=one.json", "gate.file=same.json"], True),
        (("gate=fitted",), ["gate.file=one.json", "gate.file=other.json"], False),
        (LLM, ["llm.runtime.retries=1", "llm.runtime.retries=2"], True),
        (LLM, ["llm.runtime.parallel=1", "llm.runtime.parallel=2"], True),
        (LLM, ["llm.model=m", "llm.model=n"], False),
        (LLM, ["gate.request.max_tokens=9", "gate.request.max_tokens=99"], False),
    ],
)
def test_a_key_holds_what_decides_a_gate_and_nothing_else(planner, tmp_path, fixed, words, same):
    for name, threshold in (("one", 1.5), ("same", 1.5), ("other", 2.5)):
        rule = {"features": [["bm25", "top_score"]], "k": 10, "levels": [3, 0], "thresholds": [threshold]}
        (tmp_path / f"{name}.json").write_text(json.dumps({"rule": rule, "notes": [name]}))
    first, second = (planner(*fixed).trial(0, (word,)) for word in words)
    assert (first.error, second.error, first.key == second.key) == (None, None, same)


@pytest.mark.parametrize(
    ("whole", "others"),
    [
        (("retriever.bm25.k1=2",), [("retriever.bm25.k1=2.0",), ("retriever.bm25.k1=20e-1",)]),
        ((HYBRID[0], "fusion.weights.bm25=0"), [(HYBRID[0], "fusion.weights.bm25=-0.0")]),
        (("gate=score", "gate.threshold=6"), [("gate=score", "gate.threshold=6.0")]),
        (("public=1",), [("public=1.0",)]),
    ],
)
def test_spellings_of_a_value_are_one_trial_with_one_result_in_the_cache(planner, whole, others):
    plans = planner()
    first, *respelt = [plans.trial(0, words) for words in (whole, *others)]
    assert {(one.key, one.ranking_keys, one.error) for one in respelt} == {(first.key, first.ranking_keys, None)}
    params = [retrieval_run.retrieval_params(one.plan, one.choices) for one in (first, *respelt)]
    assert all(json.dumps(one) == json.dumps(params[0]) for one in params)
    assert whole[-1].rpartition("=")[2] in {str(value) for value in params[0].values()}


def test_a_trial_that_cannot_run_keeps_its_error(planner):
    plans = planner()
    for words, said in ((("top_k=500",), "depth=100"), (("dataset.path=nowhere",), "nowhere"),
                        (("objective=ndcg@7",), "not among the metrics"), (("tokenizer.low=3",), "low"),
                        (("gate=score", "gate.source=bigram"), "gate.source='bigram'")):  # fmt: skip
        trial = plans.trial(0, words)
        assert (isinstance(trial.error, BadInput | OSError), trial.key) == (True, "")
        assert said in str(trial.error)
    assert plans.trial(1, ()).key
    with pytest.raises(ConfigCompositionException) as raised:
        planner().trial(0, ("top_kk=1", "top_k=2"))
    assert raised.value.__notes__ == ["(while composing trial top_kk=1 top_k=2)"]


def test_files_are_named_from_the_root(planner, toy):
    found = planner("dataset.qrels=toy/qrels.jsonl", "store.path=cache").trial(0, ("outputs=o",)).plan.document
    assert (found["dataset"]["path"], found["dataset"]["qrels"]) == (str(toy), str(toy / "qrels.jsonl"))
    assert (found["outputs"], found["store"]["path"]) == (str(toy.parent / "o"), str(toy.parent / "cache"))


# ---- jobs


def trial(number, job_key, ranking_keys=(), depth=10, overrides=(), error=None):
    made = Plan.of({"dataset": {}, "retriever": {}, "gate": {}, "top_k": 1, "depth": depth})
    return Trial(number, tuple(overrides), made, ranking_keys=tuple(ranking_keys), job_key=job_key, error=error)


def test_trials_with_the_same_expensive_steps_share_a_job():
    def numbers(found):
        return [([one.number for one in job.trials], job.depths) for job in found]

    # Job keys a, b, a, c, a, b: three jobs in the order in which the keys first occur, each in the order of its trials.
    # The trials of b read two rankings, at their own depths.
    ranking_keys = {"a": ("x",), "b": ("x", "y"), "c": ()}
    trials = [trial(n, key, ranking_keys[key]) for n, key in enumerate("abacab")]
    depths = {"x": 10, "y": 7}
    assert numbers(plan.jobs(trials, depths, None)) == [([0, 2, 4], (10,)), ([1, 5], (10, 7)), ([3], ())]
    # At most two in a job: the three of `a` are 2 + 1.
    assert numbers(plan.jobs(trials, depths, 2)) == [([0, 2], (10,)), ([4], (10,)), ([1, 5], (10, 7)), ([3], ())]
    # A ranking is retrieved at the greatest depth at which a trial reads it.
    assert plan.depths([trial(0, "", ("x",), 10), trial(1, "", ("x", "y"), 30)]) == {"x": 30, "y": 30}


def product(parts, **axes):
    """The trials of a grid; parts: what tells its expensive part from its words."""
    words = [tuple(f"{k}={v}" for k, v in zip(axes, point, strict=True)) for point in itertools.product(*axes.values())]
    return [trial(n, parts(dict(word.split("=") for word in one)), overrides=one) for n, one in enumerate(words)]


def test_a_key_is_expensive_if_it_alone_changes_what_is_computed():
    # k1 matters where the retriever is bm25 alone: that is enough.
    trials = product(lambda at: (at["r"], at["r"] == "bm25" and at["k1"]), top_k=(1, 2), k1=(1, 2), r=("dense", "bm25"))
    assert plan.keys_by_cost(trials) == {"expensive": ["k1", "r"], "free": ["top_k"]}
    # One value changes nothing, and trials that cannot run say nothing.
    assert plan.keys_by_cost(product(lambda at: at["k1"], k1=(1,))) == {"expensive": [], "free": ["k1"]}
    trials = product(lambda at: at["k1"], k1=(1, 2))
    trials[1].error = BadInput("no")
    assert plan.keys_by_cost(trials) == {"expensive": [], "free": ["k1"]}
    # A key may be swept where only some trials have others.
    words = [("r=dense", "top_k=1"), ("r=dense", "top_k=2")]
    words += [("r=bm25", f"k1={k1}", f"top_k={k}") for k1 in (1, 2) for k in (1, 2)]
    for jobs, expensive in ((["d", "d", "b1", "b1", "b2", "b2"], ["r", "k1"]), (["d"] * 6, [])):
        trials = [trial(n, job, overrides=own) for n, (own, job) in enumerate(zip(words, jobs, strict=True))]
        assert plan.keys_by_cost(trials)["expensive"] == expensive


def test_keys_that_only_some_choices_have_are_told_by_these_choices():
    partial = {"dataset.path": ["dataset=contest"], "dataset.qrels": ["dataset=contest"],
               "gate.k": ["gate=auto", "gate=score"]}  # fmt: skip
    said = "only with dataset=contest: dataset.path, dataset.qrels; only with gate=auto or gate=score: gate.k"
    counts = {"trials": 3, "finished_before": 0, "only_with": partial}
    assert list(plan.plan_lines(counts, ["gate"])) == ["3 trials of a search over gate", said]


# ---- words


def parsed(*words):
    return OverridesParser.create().parse_overrides(list(words))


def test_overrides_are_split_into_swept_and_fixed_ones():
    words = ("a=1", "b=1,2", "c='x,y'", "d=[1,2]", "+e=3", "f=range(0,2)", "~g", "h=glob(*)")
    fixed, swept = plan.split_overrides(parsed(*words))
    assert fixed == ["a=1", "c='x,y'", "d=[1,2]", "+e=3", "~g"]
    assert list(swept) == ["b", "f", "h"]
    # Of several for a key the last counts, so that the command line overrules a named sweep.
    fixed, swept = plan.split_overrides(parsed("a=1,2", "b=1", "a=3", "b=4,5"))
    assert (fixed, [one.input_line for one in swept.values()]) == (["a=3"], ["b=4,5"])


@pytest.mark.parametrize("key", ["outputs", "store.path", "tracking.uri", "experiment_name", "run_name", "format",
                                 "objective", "objectives", "dry_run", "search", "search.trials", "sweep"])  # fmt: skip
def test_what_decides_no_result_cannot_be_swept(key):
    with pytest.raises(BadInput, match=f"^{key} cannot be swept"):
        plan.split_overrides(parsed("top_k=1,2", f"{key}=a,b"))
    assert plan.split_overrides(parsed(f"{key}=a")) == ([f"{key}=a"], {})


def test_the_last_axis_changes_fastest():
    axes = {"a": ["a=1", "a=2"], "b": ["b=x", "b=y", "b=z"]}
    assert [" ".join(one).replace("=", "") for one in plan.combinations(axes)] == [
        "a1 bx", "a1 by", "a1 bz", "a2 bx", "a2 by", "a2 bz",
    ]  # fmt: skip
    # A grid that is too large is not expanded.
    axes = {"a": range(1000), "b": range(1000), "c": range(9)}
    with pytest.raises(BadInput, match=r"9,000,000 trials \(1,000 of a x 1,000 of b x 9 of c\)\. The maximum is"):
        plan.combinations(axes)
