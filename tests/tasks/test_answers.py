"""The task of answers: both schemes worked by hand, absent measures and their reasons, and files that are refused."""

import gzip
import itertools
import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from harness.config import components
from harness.errors import BadInput
from harness.storage.cache import Cache
from harness.tasks.answers import Answers
from harness.tasks.model_measures import ModelAbsent

TEXT = ("rouge_1", "bertscore", "bleurt")


class Model:
    """A fake model: scores by the lengths of the texts, and remembers the pairs."""

    def __init__(self, shift=0.0):
        self.shift, self.pairs = shift, []

    def score(self, predictions, references, store):
        self.pairs += zip(predictions, references, strict=True)
        return np.array([len(p) / (len(p) + len(r)) + self.shift for p, r in self.pairs[-len(predictions) :]])


class Missing:
    def score(self, predictions, references, store):
        raise ModelAbsent("bert is not in the cache")


def item(number, answer, kind=None, question=None):
    fields = {"question_type": kind, "question": question}
    return {"id": number, "input": {k: v for k, v in fields.items() if v}, "output": {"answer": answer}}


@pytest.fixture
def judged(tmp_path):
    """judged(task, predictions, references, wanted) -> (JudgedItems, every measure over all items)."""

    def call(task, predictions, references, wanted=None):
        paths = tmp_path / "p.json", tmp_path / "r.json"
        for path, items in zip(paths, (predictions, references), strict=True):
            path.write_text(json.dumps(items, ensure_ascii=False), "utf-8")
        found = task.judge(*paths, wanted or task.measures, Cache(tmp_path / "store"))
        return found, measured(task, {name: values.sum() for name, values in found.item_counts.items()})

    return call


def measured(task, sums):
    return task.measure({name: np.asarray(value, float) for name, value in sums.items()})


# ---- measures of sums


@pytest.mark.parametrize(
    ("task", "sums", "averages"),
    [
        # The published row of the task on norms: 10,000 items, all of them explained
        (Answers(), (1, 1, 0, 0.3454, 0.2603, 0.7036, 0.5313), (0.4984, 0.4219)),
        # The contest's table of base lines of the task on culture, to its four digits (rounded: within one of the last)
        (Answers("culture_qa"), (1, 1, 1, 0.4715, 0.4118, 0.4109, 0.7198, 0.5450), (0.5586, 0.4806)),
        (Answers("culture_qa"), (1, 1, 1, 0.2487, 0.1471, 0.3479, 0.6893, 0.5241), (0.5204, 0.3054)),
        (Answers("culture_qa"), (1, 1, 1, 0.4922, 0.2941, 0.3076, 0.7057, 0.5325), (0.5153, 0.4339)),
        # Arrays of sums. Single items, of which the second explains nothing; draws, the second without 서술형 answers
        (Answers(), ([1, 1], [1, 0], [0, 0], [1, 1], [0.3, 0], [0.6, 0], [0.9, 0]), ([0.6, 0], [0.8, 0.5])),
        (
            Answers("culture_qa"), ([1, 2], [1, 1], [1, 0], [1, 1], [0, 1], [0.1, 0], [0.2, 0], [0.3, 0]),
            ([0.2, np.nan], [(1 + 0 + 0.2) / 3, (0.5 + 1) / 2]),
        ),
    ],
)  # fmt: skip
def test_averages_of_sums(task, sums, averages):
    found = measured(task, dict(zip((*task.counts, *task.measures), sums, strict=False)))
    for name, expected in zip(("descriptive_avg", "final_score"), averages, strict=True):
        assert found[name] == pytest.approx(np.array(expected), abs=1.01e-4, nan_ok=True)


# ---- rag_qa: answer and reason


RAG = [
    item(1, "'적잖은'이 옳다. 물은 100도에서 끓는다", "선택형", "무엇이 옳은가?"),
    item(2, "가가 옳다#나가 옳다. 물은 언다", "교정형"),
    item(3, "다가 옳다. 까닭"),
    item("4", "라가 옳다"),
]
RAG_PREDICTED = [
    item("4", "라가 옳다. 쓸데없는 까닭"),  # right; the reference has no reason
    item(3, "다가 옳다"),  # right, without the reason that the reference has
    item(2, "나가 옳다. 물은 마른다"),  # the second alternative; 1 of 2 and 2 words in common
    item(1, "적잖은이 옳다. 물은 끓는다"),  # right but for quotes; 2 of 2 and 3 words in common
]


def test_answers_and_reasons_by_hand(judged):
    bertscore, bleurt = Model(), Model(shift=0.25)
    task = Answers(tokenizer="whitespace", bertscore=bertscore, bleurt=bleurt)
    found, values = judged(task, RAG_PREDICTED, RAG)
    assert found.item_ids == ("1", "2", "3", "4")
    assert found.kinds == ("선택형", "교정형", "answer", "answer")
    assert (found.absent, found.notes) == ({}, ())
    assert [found.item_counts[name].sum() for name in ("items", "explained", "unexplained")] == [4, 2, 1]
    # lengths: 물은 끓는다 6, 물은 100도에서 끓는다 13; 물은 마른다 6, 물은 언다 5
    assert bertscore.pairs == [("물은 끓는다", "물은 100도에서 끓는다"), ("물은 마른다", "물은 언다")]
    rouge, bert = (0.8 + 0.5) / 2, (6 / 19 + 6 / 11) / 2
    average = (rouge + bert + bert + 0.25) / 3
    assert values == pytest.approx(
        {"exact_match": 1, "rouge_1": rouge, "bertscore": bert, "bleurt": bert + 0.25, "descriptive_avg": average,
         "final_score": (1 + average) / 2}, abs=1e-12
    )  # fmt: skip
    table = found.table
    assert list(table) == ["id", "kind", "question", "reference", "prediction", "exact_match", *TEXT]
    assert table["question"] == ["무엇이 옳은가?", "", "", ""]
    assert table["prediction"][3] == "라가 옳다. 쓸데없는 까닭"
    assert table["rouge_1"] == [pytest.approx(0.8), pytest.approx(0.5), None, None]
    assert all(len(cells) == 4 for cells in table.values())


def test_without_an_explained_item_the_text_measures_are_0_and_no_model_is_asked(judged):
    task = Answers(bertscore=Missing(), bleurt=Missing())
    found, values = judged(task, [item(1, "가가 옳다")], [item(1, "가가 옳다. 까닭")])
    assert found.absent == {}
    assert values == dict.fromkeys(TEXT, 0) | {"exact_match": 1, "descriptive_avg": 0, "final_score": 0.5}


def test_empty_predictions_are_legal_and_score_0(judged):
    task = Answers(bertscore=Model(), bleurt=Model())
    found, values = judged(task, [item(1, ""), item(2, " \n")], [item(1, "가"), item(2, "나")])
    assert values["exact_match"] == 0
    assert found.notes == ("2 of 2 predictions are empty.",)


# ---- culture_qa: by the type of the question


CULTURE = [
    item(1, 3, "선다형"),
    item(2, "2", " 선다형 "),
    item(3, "경복궁#창덕궁", "단답형"),
    item(4, "강강술래는 놀이다", "서술형"),
    item(5, "씨름은 놀이다", "서술형"),
]
CULTURE_PREDICTED = [item(1, "3"), item(2, 1), item(3, "'창덕궁'"), item(4, "강강술래는 춤이다"), item(5, "")]


def test_question_types_by_hand(judged):
    bertscore = Model()
    task = Answers("culture_qa", "whitespace", bertscore, Model())
    found, values = judged(task, CULTURE_PREDICTED, CULTURE)
    assert found.kinds == ("선다형", "선다형", "단답형", "서술형", "서술형")
    assert task.measures == ("accuracy", "exact_match", *TEXT, "descriptive_avg", "final_score")
    assert [found.item_counts[name].sum() for name in task.counts] == [2, 1, 2]
    # 1 of 2 words in common, and an empty answer, which no model is asked about: each is halved
    assert bertscore.pairs == [("강강술래는 춤이다", "강강술래는 놀이다")]
    assert values == pytest.approx(
        {"accuracy": 0.5, "exact_match": 1} | dict.fromkeys((*TEXT, "descriptive_avg"), 0.25)
        | {"final_score": (0.5 + 1 + 0.25) / 3}
    )  # fmt: skip
    assert found.table["accuracy"] == [1, 0, None, None, None]
    assert found.table["bleurt"] == [None, None, None, 0.5, 0]


def test_types_that_are_not_there_are_left_out_of_the_final_score(judged):
    task = Answers("culture_qa", bertscore=Missing(), bleurt=None)
    found, values = judged(task, CULTURE_PREDICTED[:2], CULTURE[:2])
    assert values["final_score"] == values["accuracy"] == 0.5
    none = dict.fromkeys((*TEXT, "descriptive_avg"), "no question is of the type 서술형")
    assert found.absent == none | {"exact_match": "no question is of the type 단답형"}
    assert all(np.isnan(values[name]) for name in found.absent)


def test_a_part_of_the_items_has_no_final_score_where_all_of_them_have_none(judged):
    """Without a model there is none, not even over the items that need no model."""
    task = Answers("culture_qa", "whitespace")
    found, values = judged(task, CULTURE_PREDICTED, CULTURE)
    of_choices = measured(task, {name: values[:2].sum() for name, values in found.item_counts.items()})
    assert (of_choices["accuracy"], np.isnan(of_choices["final_score"])) == (0.5, True)
    assert np.isnan(values["final_score"])


# ---- absent and not wanted


FILES = {"rag_qa": (RAG_PREDICTED, RAG), "culture_qa": (CULTURE_PREDICTED, CULTURE)}
ABSENT = {"bertscore": "bert is not in the cache", "bleurt": "task.bleurt is null: no model is given"}


@pytest.mark.parametrize(
    ("models", "reasons"),
    [
        ({"bertscore": Missing(), "bleurt": Model()}, {"bertscore": ABSENT["bertscore"]}),
        ({"bertscore": Model()}, {"bleurt": ABSENT["bleurt"]}),
        ({"bertscore": Missing()}, ABSENT),
    ],
    ids=["not-in-the-cache", "null", "both"],
)
@pytest.mark.parametrize(("scheme", "files"), FILES.items())
def test_measures_whose_model_is_missing_are_absent_and_so_are_their_averages(judged, scheme, files, models, reasons):
    found, values = judged(Answers(scheme, "whitespace", **models), *files)
    needs = f"needs {', '.join(reasons)}"
    assert found.absent == reasons | {"descriptive_avg": needs, "final_score": needs}
    assert {name for name, value in values.items() if np.isnan(value)} == set(found.absent)
    assert not set(found.absent) & (set(found.item_counts) | set(found.table))


@pytest.mark.parametrize(
    ("wanted", "computed"),
    [
        (["exact_match"], {"exact_match"}),
        (["rouge_1"], {"rouge_1"}),
        (["bleurt", "exact_match"], {"bleurt", "exact_match"}),
        (["descriptive_avg"], set(TEXT)),
        (["final_score"], {"exact_match", *TEXT}),
    ],
    ids=lambda value: "+".join(sorted(value)),
)
def test_what_is_not_wanted_is_not_computed(judged, wanted, computed):
    task = Answers(tokenizer="whitespace", bertscore=Model(), bleurt=Model())
    found, _ = judged(task, RAG_PREDICTED, RAG, wanted)
    assert set(found.item_counts) - set(task.counts) == computed
    assert set(found.table) - {"id", "kind", "question", "reference", "prediction"} == computed
    assert found.absent == {}
    others = Answers(tokenizer="whitespace", bertscore=Missing(), bleurt=Missing())
    found, values = judged(others, RAG_PREDICTED, RAG, wanted)
    lacking = [name for name in ("bertscore", "bleurt") if name in computed]
    assert set(found.absent) == {*lacking, *(set(wanted) & {"descriptive_avg", "final_score"})}
    assert set(found.table) & set(TEXT) == computed - set(lacking) - {"exact_match"}
    assert all(np.isnan(values[name]) for name in found.absent)


def decomposed(value):
    """The same items with all texts in decomposed form."""
    return json.loads(unicodedata.normalize("NFD", json.dumps(value, ensure_ascii=False)))


@pytest.mark.parametrize(("scheme", "files"), FILES.items())
def test_composed_and_decomposed_files_are_the_same(judged, scheme, files):
    composed = [[one | {"id": f"문항{one['id']}"} for one in items] for items in files]
    seen = []
    for p, r in itertools.product(*((items, decomposed(items)) for items in composed)):
        task = Answers(scheme, "whitespace", bertscore=Model(), bleurt=Model())
        found, _ = judged(task, p, r)
        counts = {name: values.tolist() for name, values in found.item_counts.items()}
        seen.append((found.item_ids, found.kinds, found.table, counts))
    assert all(one == seen[0] for one in seen)


# ---- files


def test_arrays_lines_bom_crlf_and_gzip_read_alike(tmp_path):
    rows = [json.dumps(one, ensure_ascii=False) for one in RAG]
    files = {
        "array.json": f"[{','.join(rows)}]",
        "pretty.json": json.dumps(RAG, ensure_ascii=False, indent=2),
        "lines.jsonl": "\n".join(rows),
        "lines.json": "\r\n\r\n".join(rows) + "\r\n",
        "bom.json": "\ufeff [\r\n" + ",\r\n".join(rows) + "]",
    }
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(files["pretty.json"].encode()))
    tables = []
    for name, text in files.items():
        (tmp_path / name).write_bytes(text.encode())
        tables.append(Answers().judge(tmp_path / name, packed, ["exact_match"], Cache(tmp_path)).table)
    assert all(table == tables[0] for table in tables)
    assert tables[0]["exact_match"] == [1, 0, 1, 1]  # the second names both alternatives


def test_ids_are_the_same_as_text_and_number_and_other_keys_are_ignored(tmp_path):
    (tmp_path / "r.json").write_text('[{"id": 7, "input": {"question_type": null}, "output": {"answer": "가"}}]')
    (tmp_path / "p.json").write_text('{"id": "7", "input": 3, "output": {"answer": "가", "seconds": 1.5}, "x": null}')
    found = Answers().judge(tmp_path / "p.json", tmp_path / "r.json", ["exact_match"], Cache(tmp_path))
    assert found.item_counts["exact_match"].tolist() == [1]
    assert (found.kinds, found.table["question"]) == (("answer",), [""])


GOOD = '[{"id": 1, "input": {"question_type": "선다형"}, "output": {"answer": "가"}}]'


def one(answer="가", **more):
    return json.dumps([{"id": 1, "output": {"answer": answer}} | more], ensure_ascii=False)


def ids(*numbers):
    return json.dumps([item(number, "가", "선다형") for number in numbers], ensure_ascii=False)


BAD = {
    # either file
    "empty": ("", "{file}: the file holds no rows"),
    "empty-array": (" [ ] ", "{file}: the file holds no rows"),
    "broken-array": ('[\n{"id": 1},\n', "{file}:3: broken JSON"),
    "broken-line": ('{"id": 1,\n', "{file}:1: broken JSON"),
    "two-arrays": (GOOD + "\n" + GOOD, "{file}:2: broken JSON (Extra data"),
    "object-of-items": ('{"data": []}', "{file}:1: id is missing (fields here: data)"),
    "array-of-texts": ('["가"]', "{file}: item 1: '가' is not a JSON object"),
    "array-of-arrays": ("[[1]]", "{file}: item 1: [1] is not a JSON object"),
    "line-of-text": ('"가"', "{file}:1: '가' is not a JSON object"),
    "nan": (one(float("nan")), "{file}: NaN is not a JSON number"),
    "key-twice": ('[{"id": 1, "id": 2}]', "{file}: the key 'id' occurs twice"),
    "half-a-character": (one("\\ud800").replace("\\\\", "\\"), "{file}: an unpaired surrogate"),
    "not-utf-8": (GOOD.encode("cp949"), "{file}:1: byte 0xbc is not UTF-8"),
    "cut-gzip": (gzip.compress((GOOD + "\n" * 5000).encode())[:-20], "{file}: cannot be read"),
    "no-id": ('[{"output": {"answer": "가"}}]', "{file}: item 1: id is missing (fields here: output)"),
    "near-id": ('[{"ids": 1, "output": {"answer": "가"}}]', "There is 'ids'. Did you mean 'id'?"),
    "empty-id": ('[{"id": " ", "output": {"answer": "가"}}]', "{file}: item 1: id is ' ', but an id must be"),
    "id-is-a-list": ('[{"id": [1], "output": {"answer": "가"}}]', "{file}: item 1: id is [1], but an id must be"),
    "no-output": ('[{"id": 1, "answer": "가"}]', "{file}: item 1: output is missing (fields here: id, answer)"),
    "output-is-text": ('[{"id": 1, "output": "가"}]', "{file}: item 1: output is '가', but must be an object"),
    "no-answer": ('{"id": 1, "output": {"answers": "가"}}', "{file}:1: answer is missing (fields here: answers)"),
    "answer-is-null": (one(None), "{file}: item 1: output.answer is None, but must be text or a whole number"),
    "answer-is-a-list": (one(["가", "나"]), "{file}: item 1: output.answer is ['가', '나'], but must be text"),
    "answer-is-a-fraction": (one(1.5), "{file}: item 1: output.answer is 1.5, but must be text or a whole number"),
    "answer-is-true": (one(True), "{file}: item 1: output.answer is True, but must be text or a whole number"),
    "same-id-twice": (ids(1, 2, "1", 2, 1), "{file}: item 3: the id '1' is also the id of {file}: item 1. Keep one"),
}  # fmt: skip
BAD_PREDICTIONS = {
    "missing-and-extra": (ids(5, 6), "p.json: no prediction for 1 of 1 ids: 1; 2 of its 2 ids not in r.json: "
                          "5, 6. Give one prediction for each id of r.json."),
    "extra": (ids(*range(1, 9)), "p.json: 7 of its 8 ids not in r.json: 2, 3, 4, 5, 6 and 2 more"),
}  # fmt: skip
BAD_REFERENCES = {
    "missing": (ids(1, 2, 3), "p.json: no prediction for 2 of 3 ids: 2, 3. Give one prediction"),
    "no-reference": (one(" "), "r.json: item 1: output.answer is '': a reference must contain an answer"),
    "only-alternatives": (one("#'#"), "r.json: item 1: output.answer is \"#'#\": a reference must contain an answer"),
    "input-is-text": (one(input="선다형"), "r.json: item 1: input is '선다형', but must be an object"),
    "type-is-a-number": (one(input={"question_type": 1}), "r.json: item 1: question_type is 1, but must be text"),
    "question-is-a-list": (one(input={"question": ["?"]}), "r.json: item 1: question is ['?'], but must be text"),
    "no-type": (one(), "r.json: item 1: input.question_type is '', but task.scheme=culture_qa knows 선다형, 단답형"),
    "unknown-type": (one(input={"question_type": "서술"}), "item 1: input.question_type is '서술', but task.scheme="
                     "culture_qa knows 선다형, 단답형, 서술형. Did you mean '서술형'?"),
}  # fmt: skip
CASES = [(name, kind, content, expected) for kind in "pr" for name, (content, expected) in BAD.items()]
CASES += [(name, "p", *case) for name, case in BAD_PREDICTIONS.items()]
CASES += [(name, "r", *case) for name, case in BAD_REFERENCES.items()]


@pytest.mark.parametrize(
    ("kind", "content", "expected"), [case[1:] for case in CASES], ids=[f"{kind}-{name}" for name, kind, *_ in CASES]
)
def test_bad_files_are_refused_with_their_place(tmp_path, monkeypatch, kind, content, expected):
    monkeypatch.chdir(tmp_path)
    for name in "pr":
        text = content if name == kind else GOOD
        Path(f"{name}.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadInput) as refused:
        Answers("culture_qa").judge(Path("p.json"), Path("r.json"), ["accuracy"], Cache(tmp_path))
    assert expected.replace("{file}", f"{kind}.json") in str(refused.value)


# ---- as a component of a config


def node(**more):
    return {"_target_": "harness.tasks.answers.Answers", **more}


def test_the_shipped_config_builds_and_loads_nothing():
    import yaml

    shipped = yaml.safe_load((components.conf_folder() / "task" / "answers.yaml").read_text("utf-8"))
    components.check_component(shipped["task"], "task")
    task = components.build(shipped["task"], where="task")
    assert shipped["objective"] in task.measures
    assert shipped["task"]["scheme"] == "rag_qa"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"scheme": "rag"}, "task.scheme='rag' is not one of rag_qa, culture_qa. Did you mean 'rag_qa'?"),
        ({"tokenizer": "mecab"}, "task.tokenizer='mecab' is not one of kiwi, whitespace."),
        ({"bertscore": "bert-base"}, "task.bertscore must name a component (`_target_`) of the group measure."),
        ({"bert_score": None}, "task.bert_score is unknown: Answers takes scheme, tokenizer, bertscore, bleurt. Did"),
    ],
    ids=["scheme", "tokenizer", "model", "key"],
)
def test_bad_arguments_are_refused_by_the_check_of_a_config(arguments, expected):
    with pytest.raises(BadInput) as refused:
        components.check_component(node(**arguments), "task")
    assert expected in str(refused.value)
