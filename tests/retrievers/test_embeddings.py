"""Embeddings on disk: equal texts are encoded once, and interruptions, kills and damage lose no finished work."""

import contextlib
import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrievers.dense import embeddings
from retrievers.dense.embeddings import BadVector, collect_embeddings, write_embeddings

TEXTS = [f"text {i}" for i in range(20)]


def vector(text, dimensions=3):
    """The vector of a text: numbers that differ between texts."""
    seed = sum(ord(character) * (i + 1) for i, character in enumerate(text))
    return [np.float32(seed * (i + 1) % 10007) for i in range(dimensions)]


class FakeEncoder:
    """Encodes `size` rows at a time, backwards; records them; raises after `stop` rows."""

    def __init__(self, texts=TEXTS, size=3, stop=None, dimensions=3):
        self.texts, self.size, self.stop, self.dimensions, self.rows = texts, size, stop, dimensions, []
        self.closed = False

    def __call__(self, rows, left):
        try:
            rows = rows[left][::-1]
            for start in range(0, len(rows), self.size):
                if self.stop is not None and len(self.rows) >= self.stop:
                    raise KeyboardInterrupt
                some = rows[start : start + self.size]
                self.rows += some.tolist()
                vectors = [vector(self.texts[row], self.dimensions) for row in some]
                yield some, np.array(vectors, np.float32).reshape(len(some), -1)
        finally:
            self.closed = True


def assert_written(folder, texts=TEXTS):
    assert {path.name for path in folder.iterdir()} == {"embeddings.npy"}  # no temporary files are left
    found = np.load(folder / "embeddings.npy", allow_pickle=False)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected(texts))


def expected(texts):
    return np.array([vector(text) for text in texts], np.float32) if texts else np.zeros((0, 0))


def encoded_again(folder):
    """Finish a folder and return the rows that were still to encode."""
    encode, calls = FakeEncoder(), []
    write_embeddings(TEXTS, folder, encode, lambda *call: calls.append(call))
    assert_written(folder)
    assert [calls[0], calls[-1]] == [(20 - len(encode.rows), 20, "documents"), (20, 20, "documents")]
    return encode.rows


def stopped(folder, stop):
    """Encode three rows at a time and interrupt after `stop` rows."""
    encode = FakeEncoder(stop=stop)
    with pytest.raises(KeyboardInterrupt):
        write_embeddings(TEXTS, folder, encode)
    assert encode.closed


def test_equal_texts_are_encoded_once(tmp_path):
    texts, calls = ["a", "b", "a", "", "b", "a", ""], []
    encode = FakeEncoder(texts, size=2)
    write_embeddings(texts, tmp_path, encode, lambda *call: calls.append(call))
    assert sorted(encode.rows) == [0, 1, 3]
    assert_written(tmp_path, texts)
    # Backwards in twos: rows 3 and 1 are shared by two texts each, then row 0 by three.
    assert calls == [(0, 7, "documents"), (4, 7, "documents"), (7, 7, "documents")]
    (tmp_path / "block-left.npz").write_bytes(b"killed between the last two steps")
    write_embeddings(texts, tmp_path, None)  # nothing is encoded again
    assert_written(tmp_path, texts)
    encode = FakeEncoder(texts)
    np.testing.assert_array_equal(collect_embeddings(texts, encode), expected(texts))
    assert sorted(encode.rows) == [0, 1, 3]


def killed(folder, kept):
    """Kill this process once it has written `kept` rows, of 20 before the last step."""
    embeddings.WRITE_SECONDS = 0.0 if kept else 60.0
    replace = Path.replace

    def kill():
        os.kill(os.getpid(), signal.SIGKILL)

    class Encoder(FakeEncoder):
        def __call__(self, rows, left):
            for batch in super().__call__(rows, left):
                if len(self.rows) > (kept or 9):
                    kill()
                yield batch

    Path.replace = lambda path, to: kill() if to.name == "embeddings.npy" else replace(path, to)
    write_embeddings(TEXTS, folder, Encoder())


@pytest.mark.parametrize("kept", [9, 0, 20], ids=["written", "not yet written", "before the last step"])
def test_a_killed_process_loses_only_unwritten_vectors(tmp_path, kept):
    child = multiprocessing.get_context("fork").Process(target=killed, args=(tmp_path, kept))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert sorted(encoded_again(tmp_path)) == list(range(20 - kept))


@pytest.mark.parametrize(("seconds", "size", "files"), [(0.0, 1e9, 6), (1e9, 1, 6), (1e9, 1e9, 1)])
def test_blocks_are_written_during_the_work(tmp_path, monkeypatch, seconds, size, files):
    monkeypatch.setattr(embeddings, "WRITE_SECONDS", seconds)
    monkeypatch.setattr(embeddings, "WRITE_BYTES", size)
    stopped(tmp_path, 18)  # six batches; the end of the work writes the rest
    assert len(list(tmp_path.iterdir())) == files


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "kept"),
    [
        (flip_a_byte, 6),
        (lambda path: path.write_bytes(path.read_bytes()[:-7]), 6),
        (lambda path: path.write_bytes(b""), 6),
        (Path.unlink, 6),
        (lambda path: path.with_name("block-0.npz.tmp").write_bytes(b"half"), 12),
        (lambda path: path.with_name("block-0.npz").write_bytes(path.read_bytes()), 12),
    ],
    ids=["flipped", "cut", "empty", "gone", "half-written", "under another name"],
)
def test_damaged_vectors_are_encoded_again(tmp_path, damage, kept):
    stopped(tmp_path, 6)
    [first] = tmp_path.iterdir()
    stopped(tmp_path, 6)  # a second block, also of six rows
    damage(first)
    assert len(encoded_again(tmp_path)) == 20 - kept


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_error_of_a_vector_that_is_not_finite_names_its_text(tmp_path, value):
    def encode(rows, _):
        vectors = np.ones((len(rows), 3), np.float32)
        vectors[rows == 7, 1] = value
        yield rows, vectors

    for call in (lambda: write_embeddings(TEXTS, tmp_path, encode), lambda: collect_embeddings(TEXTS, encode)):
        with pytest.raises(BadVector, match="text 7 contains NaN or infinity") as caught:
            call()
        assert (caught.value.row, caught.value.reason) == (7, "contains NaN or infinity")


def test_each_text_has_a_vector_and_all_have_the_same_length(tmp_path):
    stopped(tmp_path, 6)
    with pytest.raises(BadVector, match="has 4 dimensions where others have 3"):
        write_embeddings(TEXTS, tmp_path, FakeEncoder(dimensions=4))

    def encode(rows, _):
        yield rows[:1], np.ones((1, 2), np.float32)
        yield rows[1:], np.ones((len(rows) - 1, 5), np.float32)

    with pytest.raises(BadVector, match="has 5 dimensions where others have 2") as caught:
        collect_embeddings(TEXTS, encode)
    assert caught.value.row == 1
    with pytest.raises(RuntimeError, match="left texts out"):
        write_embeddings(TEXTS, tmp_path, lambda rows, left: FakeEncoder()(rows[1:], left[1:]))
    assert not (tmp_path / "embeddings.npy").exists()


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system reserves no room")
def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        write_embeddings(TEXTS, tmp_path, FakeEncoder())
    monkeypatch.undo()
    assert encoded_again(tmp_path) == []


@settings(max_examples=60)
@given(
    texts=st.lists(st.sampled_from(["", "a", "b", "가", "나다"]) | st.text(max_size=3), max_size=30),
    stops=st.lists(st.integers(0, 20), max_size=4),
    size=st.integers(1, 7),
)
def test_any_number_of_interruptions(tmp_path_factory, texts, stops, size):
    folder, through = tmp_path_factory.mktemp("stops"), []
    for stop in [*stops, None]:
        encode = FakeEncoder(texts, size, stop)
        with contextlib.suppress(KeyboardInterrupt):
            write_embeddings(texts, folder, encode)
        through += encode.rows
    assert len(through) == len(set(texts))  # each text once, over all calls
    assert_written(folder, texts)
