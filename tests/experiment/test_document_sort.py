"""Documents come out sorted and unchanged, however few fit into memory at a time."""

import random

import pytest

from harness.experiment import ingest
from harness.experiment.ingest import DocumentSort
from retrievers.base import Document


def made(count):
    documents = [Document(str(i % 40 + i // 2), f"본문 {i}", "t" * (i % 3), "s" * (i % 2)) for i in range(count)]
    documents += [Document(str(-i), "", native_id=-i) for i in range(1, count)]
    random.Random(0).shuffle(documents)
    return list(enumerate(documents, start=1))


@pytest.mark.parametrize(("characters", "at_once"), [(10**9, 64), (2000, 64), (400, 3), (1, 2)])
def test_they_come_out_as_sorted_by_python(tmp_path, monkeypatch, characters, at_once):
    monkeypatch.setattr(ingest, "RUN_CHARACTERS", characters)
    monkeypatch.setattr(ingest, "RUNS_AT_ONCE", at_once)
    sort, documents = DocumentSort(tmp_path), made(60)
    for number, document in documents:
        sort.add(f"row {number}", document)
    found = [(one.position, one.document) for one in sort.merged()]
    # sorted() is stable, so that documents with the same id must stay in their order, too.
    assert found == [(f"row {n}", one) for n, one in sorted(documents, key=lambda pair: pair[1].doc_id)]
    assert sort.count == len(documents)
    assert len(list(tmp_path.iterdir())) <= at_once


def test_nothing_gives_nothing(tmp_path):
    assert list(DocumentSort(tmp_path).merged()) == []
