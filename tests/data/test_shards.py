"""Documents in shards are equal to the same documents in a tuple, and damaged files are refused."""

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data import shards
from harness.data.dataset import Dataset
from harness.errors import BadInput
from retrievers.base import Document, IndexedTexts

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.integers(-20, 10**18).map(lambda n: Document(str(n), "", native_id=n))
others = st.builds(Document, texts.filter(str.strip), texts, texts, texts)
corpora = st.lists(numbers | others, max_size=20, unique_by=lambda one: one.doc_id).map(
    lambda documents: tuple(sorted(documents, key=lambda one: one.doc_id))
)


def written(folder, documents, sizes):
    """The documents in a folder as shards of these sizes; the last size is for all that are left."""
    folder.mkdir()
    table, start = shards.CorpusWriter(folder, len(documents)), 0
    while start < len(documents):
        size = sizes.pop(0) if sizes else len(documents)
        (folder / "new").mkdir()
        shard = shards.ShardWriter(folder / "new")
        for one in documents[start : start + size]:
            shard.add(one, shards.fingerprint_row(one))
            table.add(one, shards.fingerprint_row(one))
        table.cut(fingerprint := shard.close())
        (folder / "new").rename(folder / fingerprint)
        start += size
    table.close()
    return shards.ShardedDocuments(folder, lambda fingerprint: folder / fingerprint)


def made(count):
    return tuple(Document(f"d{i:03}", f"본문 {i}", "제목" * (i % 2), "출처") for i in range(count))


@pytest.mark.slow
@given(corpora, st.lists(st.integers(1, 5), max_size=5), st.slices(22))
def test_they_are_equal_to_a_tuple(tmp_path_factory, documents, sizes, part):
    read = written(tmp_path_factory.mktemp("corpus") / "c", documents, sizes)
    assert tuple(read) == documents
    assert len(read) == len(documents)
    assert read[part] == documents[part]
    assert [read[i] for i in range(-len(read), len(read))] == [*documents, *documents]
    for beyond in (len(read), -len(read) - 1, 10**9):
        with pytest.raises(IndexError):
            read[beyond]
    assert [*read.by_id] == [one.doc_id for one in documents]
    assert dict(read.by_id) == {one.doc_id: one for one in documents}
    assert read.fingerprint == Dataset("", documents, (), None).fingerprints["documents"]
    assert list(IndexedTexts(read)) == [one.indexed_text for one in documents]
    count, first = shards.empty_documents(documents)
    assert shards.empty_documents(read) == (count, tuple(first[: shards.FIRST_EMPTY]))


def test_ids_are_found_by_code_points(tmp_path):
    # In UTF-16 the last would come before the one before it; as bytes and as code points it comes after.
    ids = ["", "a", "가", "\uff5e", "\U0001f319"]
    read = written(tmp_path / "c", tuple(Document(one, one) for one in ids), [2])
    assert [read.by_id[one].text for one in ids] == ids
    for lacking in ("\0", "aa", "각", "\U0001f31a", "\ud800", 5):
        assert lacking not in read.by_id
    with pytest.raises(KeyError):
        read.by_id["aa"]


def test_a_shard_has_its_place_and_the_fingerprint_of_its_documents(tmp_path):
    documents = made(7)
    read = written(tmp_path / "c", documents, [3, 2])
    assert [(one.first, one.size) for one in read.shards] == [(0, 3), (3, 2), (5, 2)]
    assert [one.fingerprint for one in read.shards] == [
        shards.fingerprint_of(documents[a:b]) for a, b in [(0, 3), (3, 5), (5, 7)]
    ]
    assert tuple(read.shard(1)) == documents[3:5]
    # The fingerprint is the sha256 of JSON lines, as it has been since before there were shards.
    rows = '["d000","","본문 0"]\n["d001","제목","본문 1"]\n["d002","","본문 2"]\n'
    assert read.shards[0].fingerprint == hashlib.sha256(rows.encode()).hexdigest()


def test_iterating_opens_one_shard_after_the_other_and_looking_up_keeps_some_open(tmp_path):
    read, opened = written(tmp_path / "c", made(100), [2] * 50), []
    counting = shards.ShardedDocuments(tmp_path / "c", lambda one: opened.append(one) or tmp_path / "c" / one)
    assert tuple(counting) == tuple(read)
    assert len(opened) == 50
    opened.clear()
    for _ in range(3):
        assert counting.by_id["d010"] == read[10]
        assert counting[10:14] == read[10:14]
    assert len(opened) == 2
    assert shards.OPEN_SHARDS * 2 < 256  # the fewest open files that systems allow a process


def test_a_native_id_that_is_another_number_is_no_document(tmp_path):
    with pytest.raises(ValueError, match="has a different native id"):
        written(tmp_path / "c", (Document("7", "", native_id=8),), [])


def _cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def _ends(change):
    def damage(path):
        ends = np.load(path)
        np.save(path, change(ends))

    return damage


DAMAGE = {
    "texts cut": (shards.TEXTS, _cut),
    "no UTF-8": (shards.TEXTS, lambda path: path.write_bytes(b"\xff" * path.stat().st_size)),
    "ends cut": (shards.ENDS, _cut),
    "ends fall": (shards.ENDS, _ends(lambda ends: np.concatenate([ends[:1], ends[1:-1][::-1], ends[-1:]]))),
    "ends of floats": (shards.ENDS, _ends(lambda ends: ends.astype(float))),
    "one end too few": (shards.ENDS, _ends(lambda ends: ends[:-1])),
    "an archive": (shards.ENDS, lambda path: np.savez(path.open("wb"), ends=np.zeros(3))),
    "text for an array": (shards.ENDS, lambda path: path.write_text("[0, 1]")),
    "no flags": (shards.NUMBERS, lambda path: path.write_bytes(b"")),
    "numbers that are none": (shards.NUMBERS, _ends(np.logical_not)),
    "flags of another shape": (shards.NUMBERS, _ends(lambda flags: flags.reshape(1, -1))),
}


def _table(**changes):
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | changes))


TABLES = {
    "no JSON": (shards.TABLE, lambda path: path.write_text("{")),
    "a list": (shards.TABLE, lambda path: path.write_text("[]")),
    "a key is gone": (shards.TABLE, lambda path: path.write_text('{"shards": []}')),
    "shards are numbers": (shards.TABLE, _table(shards=[1])),
    "too many documents": (shards.TABLE, _table(shards=[["a", 9]])),
    "fewer than none": (shards.TABLE, _table(shards=[["a", 6], ["b", -1]])),
    "ids cut": (shards.IDS, _cut),
    "ids that are not text": (shards.IDS, lambda path: path.write_bytes(b"\xff" * 20)),
    "ends of ids cut": (shards.ID_ENDS, _cut),
    "ends of ids of another shape": (shards.ID_ENDS, _ends(lambda ends: ends.reshape(1, -1))),
}


@pytest.mark.parametrize(("name", "damage"), (DAMAGE | TABLES).values(), ids=DAMAGE | TABLES)
def test_damaged_files_are_refused(tmp_path, name, damage):
    folder = tmp_path / "c"
    shard = folder / written(folder, made(5), []).shards[0].fingerprint
    damage((folder if name in (shards.TABLE, shards.IDS, shards.ID_ENDS) else shard) / name)

    def read():
        found = shards.ShardedDocuments(folder, lambda one: folder / one)
        return list(found), list(found.by_id)

    with pytest.raises(BadInput, match=r"is damaged .*it is made again"):
        read()


def cut(ids, size):
    """The ids in shards of about `size`."""
    found = []
    for one in sorted(ids):
        if not found or shards.begins_shard(one, size, len(found[-1])):
            found.append([])
        found[-1].append(one)
    return list(map(tuple, found))


@pytest.mark.parametrize("size", [1, 2, 3, 10, 100])
def test_shards_have_about_the_size_that_was_asked_for(size):
    sizes = [len(one) for one in cut(map(str, range(20_000)), size)]
    assert max(sizes) <= 2 * size
    assert min(sizes[:-1]) >= max(1, size // 2)
    assert np.mean(sizes) == pytest.approx(size, rel=0.1)


@given(
    st.integers(0, 400),
    st.lists(st.integers(0, 1500), max_size=2, unique=True),
    st.lists(st.integers(2000, 9999), max_size=2, unique=True),
)
def test_added_and_removed_documents_change_few_shards(start, removed, added):
    # A change is felt up to the next boundary that both cuts share: one shard for most, and rarely some more, where the
    # upper limit of a shard's size has moved a boundary.
    before = {f"d{i * 7919 % 100_003}" for i in range(start, start + 1500)}
    gone = {f"d{(start + i) * 7919 % 100_003}" for i in removed}
    after = before - gone | {f"n{i}" for i in added}
    old, new = set(cut(before, 30)), set(cut(after, 30))  # about 50
    changes = len(before ^ after)
    assert len(new - old) <= 4 * changes


def test_missing_ids_are_those_that_a_lookup_misses(tmp_path, monkeypatch):
    documents = made(3 * shards.STRIDE)
    read = written(tmp_path / "c", documents[::2], [50])
    wanted = ["", "d", *(one.doc_id for one in documents), "e"]
    lacking = [one for one in wanted if one not in {two.doc_id for two in documents[::2]}]
    for most in (0, 10**9):
        monkeypatch.setattr(shards, "MERGED", most)
        assert shards.missing_ids(read.by_id, wanted) == lacking
    assert shards.missing_ids({"d": documents[0]}, ["c", "d"]) == ["c"]
