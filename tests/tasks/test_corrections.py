"""The task `corrections`: files, pairs, measures to the published digits, what people are shown."""

import csv
import gzip
import json
import unicodedata

import numpy as np
import pytest
import yaml

from harness.config import components
from harness.errors import BadInput
from harness.storage.cache import Cache
from harness.tasks.corrections import Corrections

REFERENCES = """id,source,reference
s1,감자기 침대에서 일어났다,갑자기 침대에서 일어났다
s2,"그는, 할수 있다","그는, 할 수 있다"
s3,비가 온다,비가 온다
"""
PREDICTIONS = """id,prediction
s3,비가 온다
s1,갑자기 침대에 일어났다
s2,"그는, 할수 있다"
"""


def judged(folder, predictions=PREDICTIONS, references=REFERENCES, names=("p.csv", "r.csv"), **arguments):
    paths = [folder / name for name in names]
    for path, content in zip(paths, (predictions, references), strict=True):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    task = Corrections(**arguments)
    return task.judge(*paths, task.measures, Cache(folder / "store"))


def table(**columns):
    """Rows as CSV, with ids."""
    names = ["id", *columns]
    rows = [names, *([f"s{i}", *row] for i, row in enumerate(zip(*columns.values(), strict=True)))]
    return "".join(",".join('"' + cell.replace('"', '""') + '"' for cell in row) + "\n" for row in rows)


# Measures -------------------------------------------------------------------------------------------


def sums(counts):
    return dict(zip(("tp", "fp", "fn", "fr"), np.array(counts, float), strict=True))


@pytest.mark.parametrize(
    ("counts", "recall", "precision"),
    [
        ((79, 68, 98, 414), 79 / 245, 79 / 561),  # the published row
        ((1, 1, 0, 1), 1 / 2, 1 / 3),
        ((0, 0, 0, 0), 1, 1),  # nothing to correct, nothing touched
        ((0, 0, 0, 3), 0, 0),  # `span`: nothing to correct, but something touched
        ((0, 0, 2, 0), 0, 0),  # nothing touched, though something was to correct
        ((2, 0, 0, 0), 1, 1),
        (([79, 0], [68, 0], [98, 1], [414, 0]), [79 / 245, 0], [79 / 561, 0]),  # sums of any shape
    ],
)
def test_measures_of_counts(counts, recall, precision):
    found = Corrections().measure(sums(counts))
    np.testing.assert_allclose(found["correction_recall"], recall, atol=1e-12)
    np.testing.assert_allclose(found["correction_precision"], precision, atol=1e-12)


@pytest.mark.parametrize(
    ("scheme", "counts", "silent"),
    [
        ("token", (0, 2, 0, 2), True),  # needless edits alone
        ("token", (0, 2, 0, 1), False),  # one of the two is where a correction was wanted
        ("token", (0, 0, 1, 0), False),
        ("span", (0, 0, 0, 2), True),
        ("span", (0, 2, 0, 2), False),
        ("span", (1, 0, 0, 0), False),
        ("token", (0, 0, 0, 0), True),
    ],
)
def test_recall_says_nothing_about_a_kind_of_sentences_without_a_wanted_edit(scheme, counts, silent):
    found = Corrections(scheme).says_nothing(sums(counts))
    assert tuple(found) == (("correction_recall",) if silent else ())


# What comes out -------------------------------------------------------------------------------------


def test_a_judgement_follows_the_references(tmp_path):
    found = judged(tmp_path)
    assert found.item_ids == ("s1", "s2", "s3")
    assert found.kinds == ("to correct", "to correct", "nothing to correct")
    assert {name: values.tolist() for name, values in found.item_counts.items()} == {
        "tp": [1, 0, 0], "fp": [1, 0, 0], "fn": [0, 1, 0], "fr": [1, 0, 0],
    }  # fmt: skip
    assert all(values.dtype == np.float64 for values in found.item_counts.values())
    assert list(found.table) == [
        "id", "kind", "source", "reference", "prediction", "edits", "tp", "fp", "fn", "fr", "correction_recall",
    ]  # fmt: skip
    assert found.table["prediction"] == ["갑자기 침대에 일어났다", "그는, 할수 있다", "비가 온다"]
    assert found.table["edits"] == ["감자기→갑자기 TP; 침대에서→침대에 FR", "할수→할 수 FN", ""]
    assert found.table["correction_recall"] == [0.5, 0.0, 1.0]
    assert found.marked["prediction"][0] == [("갑자기", "tp"), (" ", ""), ("침대에", "fr"), (" 일어났다", "")]
    assert found.marked["reference"][1] == [("그는, ", ""), ("할", "fn"), (" ", ""), ("수", "fn"), (" 있다", "")]
    assert found.marked["source"][2] == [("비가 온다", "")]
    assert not found.absent
    assert not found.notes


def test_error_types_are_kinds(tmp_path):
    references = table(source=["가", "나", "다"], reference=["가", "마", "다"], error_type=["조사", " ", "띄어쓰기"])
    assert judged(tmp_path, table(prediction=["가"] * 3), references).kinds == ("조사", "to correct", "띄어쓰기")
    named = references.replace("error_type", "kind")
    found = judged(tmp_path, table(prediction=["가"] * 3), named, columns={"type": "kind"})
    assert found.kinds == ("조사", "to correct", "띄어쓰기")


@pytest.mark.parametrize(
    ("predictions", "false", "notes"),
    [
        (["가", "나", "다", "라 라"], 0, ("2 of 3 sentences that need correction were left unchanged.",)),
        (["가", "나", "다 다", "라 라"], 0, ()),
        # An empty prediction deletes every word.
        (["", "나 나", "다 다", "라"], 1, ("1 of 4 predictions are empty: all words of their sentences are deleted.",)),
    ],
)
def test_notes(tmp_path, predictions, false, notes):
    references = table(source=["가", "나", "다", "라"], reference=["가", "나 나", "다 다", "라 라"])
    found = judged(tmp_path, table(prediction=predictions), references)
    assert (found.item_counts["fp"].sum(), found.notes) == (false, notes)


# Files ----------------------------------------------------------------------------------------------

AS_JSON = [
    "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in csv.DictReader(text.splitlines()))
    for text in (PREDICTIONS, REFERENCES)
]


@pytest.mark.parametrize(
    ("predictions", "references", "names"),
    [
        (*AS_JSON, ("p.jsonl", "r.jsonl")),
        (*AS_JSON, ("p.csv", "r")),  # told by content
        (AS_JSON[0], REFERENCES, ("p", "r")),
        (PREDICTIONS.replace("\n", "\r\n"), "\ufeff" + REFERENCES.replace("\n", "\r\n\r\n"), ("p.csv", "r.csv")),
        (gzip.compress(PREDICTIONS.encode()), gzip.compress(AS_JSON[1].encode()), ("p.csv.gz", "r.jsonl.gz")),
        (PREDICTIONS.replace("비가 온다", '"비가\n\n온다"'), REFERENCES, ("p.csv", "r.csv")),  # a cell of three lines
        (PREDICTIONS.replace("id,p", "no,id,p").replace("\ns", "\n0,s"), REFERENCES, ("p.csv", "r.csv")),
        (unicodedata.normalize("NFD", PREDICTIONS), REFERENCES, ("p.csv", "r.csv")),
    ],
    ids=["jsonl", "jsonl-by-content", "mixed", "bom-crlf", "gzip", "lines-in-a-cell", "further-column", "nfd"],
)
def test_the_same_in_every_form(tmp_path, predictions, references, names):
    plain, found = judged(tmp_path), judged(tmp_path, predictions, references, names)
    assert found.item_ids == plain.item_ids
    assert found.table["edits"] == plain.table["edits"]


def test_columns_of_other_names(tmp_path):
    named = {"id": "no", "source": "err_sentence", "reference": "cor_sentence", "prediction": "cor_sentence"}
    references = REFERENCES.replace("id,source,reference", "no,err_sentence,cor_sentence")
    found = judged(tmp_path, PREDICTIONS.replace("id,prediction", "no,cor_sentence"), references, columns=named)
    assert found.table == judged(tmp_path).table
    found = judged(tmp_path, '{"id": 7, "prediction": "가"}', "id,source,reference\n7,가,가\n")
    assert found.item_ids == ("7",)  # a whole number is an id in both formats


P, R = "id,prediction\n", "id,source,reference\n"
ONE_P, ONE_R = P + "a,가\n", R + "a,가,나\n"


@pytest.mark.parametrize(
    ("predictions", "references", "message"),
    [
        ("", ONE_R, "p.csv: the file holds no rows"),
        (P, ONE_R, "p.csv: the file holds no rows"),
        (ONE_P, "\n\n", "r.csv: the file holds no rows"),
        ("id,predicton\na,가\n", ONE_R, "p.csv:1: there is no column 'prediction'*Did you mean 'predicton'?"),
        ("no,prediction\na,가\n", ONE_R, "p.csv:1: there is no column 'id' (no, prediction)*task.columns.id=NAME"),
        (ONE_P, "\nid;source;reference\na;가;나\n", "r.csv:2: there is no column 'id' (id;source;reference)"),
        ('{"id": "a", "prediction": "가"}\n{"id": "b"}\n', ONE_R, "p.csv:2: there is no column 'prediction' (id)"),
        (P + "a\n", ONE_R, "p.csv:2: 1 cells, but the header has 2: id, prediction. Quote a text"),
        (P + "a,그는, 나\n", ONE_R, "p.csv:2: 3 cells, but the header has 2"),
        ("id,prediction,id\na,가,b\n", ONE_R, "p.csv:1: the header names a column twice: id, prediction, id"),
        (P + 'a,"가\nb,나\n', ONE_R, "p.csv:2: broken CSV in the row that begins here (unexpected end of data)"),
        (P + 'a,"가" 나\n', ONE_R, "p.csv:2: broken CSV in the row that begins here*Is a closing quote missing?"),
        (P + 'a,"가\n\n나"\nb,"가\n나"\nb,다\n', ONE_R, "p.csv:7: id 'b' is already at *p.csv:5"),
        (P + "a,가\na,가\n", ONE_R, "p.csv:3: id 'a' is already at *p.csv:2. Remove one of them."),
        (ONE_P, ONE_R + "a,가,나\n", "r.csv:3: id 'a' is already at *r.csv:2. Remove one of them."),
        (P + " ,가\n", ONE_R, "p.csv:2: id is ' ', but an id must be non-empty text"),
        (P + "b,가\n", ONE_R, "p.csv: no prediction for 1 of 1 ids: a; 1 of its 1 ids not in *r.csv: b. Give"),
        (P + "".join(f"{i},가\n" for i in range(9)) + "a,가\n", ONE_R, "9 of its 10 ids not in *: 0, 1, *4 and 4 more"),
        (ONE_P, R + "a,,나\n", "r.csv:2: source is empty. Write the sentence, or remove the row"),
        (ONE_P, R + "a,가,  \n", "r.csv:2: reference is empty."),
        ("[{}]", ONE_R, "p.csv:1: this is a JSON array"),
        ('{"id": "a", "prediction": "가"', ONE_R, "p.csv:1: broken JSON"),
        ('{"id": "a", "prediction": null}', ONE_R, "p.csv:1: prediction is None, but must be text."),
        ('{"id": "a", "prediction": ["가"]}', ONE_R, "p.csv:1: prediction is ['가'], but must be text."),
        ('{"id": 1.5, "prediction": "가"}', ONE_R, "p.csv:1: id is 1.5, but an id must be non-empty text"),
        (ONE_P, '{"id": "a", "source": "가", "reference": "나", "error_type": 3}', "r.csv:1: error_type is 3"),
        ((P + "a,각\n").encode("cp949"), ONE_R, "p.csv:2: byte 0xb0 is not UTF-8. Save the file as UTF-8."),
        (gzip.compress(ONE_P.encode())[:-9], ONE_R, "p.csv:*: cannot be read*Is the file complete?"),
    ],
    ids=range(28),
)
def test_bad_files(tmp_path, predictions, references, message):
    with pytest.raises(BadInput) as error:
        judged(tmp_path, predictions, references)
    found, at = str(error.value), 0
    for part in message.split("*"):  # in this order
        assert part in found[at:], f"{part!r} in {found!r}"
        at = found.index(part, at) + len(part)


def test_missing_files_and_columns_that_were_asked_for(tmp_path):
    with pytest.raises(BadInput, match=r"r\.csv: there is no such file"):
        Corrections().judge(tmp_path / "p.csv", tmp_path / "r.csv", (), Cache(tmp_path / "store"))
    with pytest.raises(BadInput, match=r"p\.jsonl:1: broken JSON"):  # by its name JSON, whatever it holds
        judged(tmp_path, PREDICTIONS, names=("p.jsonl", "r.csv"))
    with pytest.raises(BadInput, match=r"r\.csv:1: there is no column 'kind'.*task\.columns\.type=NAME"):
        judged(tmp_path, columns={"type": "kind"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"merge_gap": -1}, "merge_gap=-1 is too small: give 0"),
        ({"columns": {"sorce": "x"}}, "columns.sorce is unknown. Did you mean 'source'?"),
        ({"columns": {"source": " "}}, "columns.source=' ' is not the name of a column"),
        ({"columns": {"source": 3}}, "columns.source=3 is not the name of a column"),
        ({"columns": {"source": "reference"}}, "columns.source and columns.reference are both 'reference'"),
        ({"columns": {"id": "prediction"}}, "columns.id and columns.prediction are both 'prediction'"),
        ({"columns": {"type": "id"}}, "columns.id and columns.type are both 'id'"),
    ],
    ids=range(7),
)
def test_bad_arguments(arguments, message):
    with pytest.raises(BadInput) as error:
        Corrections(**arguments)
    assert message in str(error.value)


def test_the_shipped_config_is_the_default():
    shipped = yaml.safe_load((components.conf_folder() / "task" / "corrections.yaml").read_text("utf-8"))
    node = shipped["task"]
    components.check_component(node, "task")
    task = components.build(node, where="task")
    assert vars(task) == vars(Corrections())
    assert shipped["objective"] in Corrections.measures
    with pytest.raises(BadInput, match=r"task\.scheme='tken' is not one of token, span\. Did you mean 'token'"):
        components.check_component(node | {"scheme": "tken"}, "task")
