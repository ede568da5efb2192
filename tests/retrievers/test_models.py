"""Models are found in folders, caches and on the hub; their identity; devices, number formats and batches."""

import contextlib
import json
import socket
import subprocess
import sys
from types import SimpleNamespace
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from raw_server import RawServer
from tiny_models import COMMIT, hub_cache, tiny_bge_m3, use_hub_cache
from transformers import AutoModel, BertConfig, RobertaConfig, T5Config

from harness.errors import BadInput
from retrievers.combine.rerank import CrossEncoder
from retrievers.dense import models
from retrievers.dense.bge_m3 import MultiVector, Sparse
from retrievers.dense.encoders import SentenceEncoder
from retrievers.dense.models import ModelSource, NeuralModel

NAME = "somebody/tiny-m3"
TOKEN = "hf_neverToBeShown"
REMEDIES = ("hf download ", "HF_HOME", "encoder.path=FOLDER", "encoder=lsa", "retriever=hybrid_lexical")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_bge_m3(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty hub cache; the hub is unreachable, and offline mode is off."""
    use_hub_cache(monkeypatch, tmp_path / "hub", offline=False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    return tmp_path / "hub"


@pytest.fixture
def serve(monkeypatch):
    """Replace the hub with a function path -> (status, headers, body)."""
    with contextlib.ExitStack() as servers:

        def start(answer):
            def respond(wire):
                method, path = wire.head.decode().split()[:2]
                status, headers, body = answer(unquote(urlsplit(path).path))
                headers = {"Content-Length": len(body), "Connection": "close", **headers}
                head = [f"HTTP/1.1 {status} -", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
                wire.send("\r\n".join(head).encode() + (body if method == "GET" else b""))

            endpoint = servers.enter_context(RawServer(respond)).url.removesuffix("/search")
            template = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
            monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)
            monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)

        yield start


def message_for(**where) -> str:
    with pytest.raises(BadInput) as error:
        models.locate_model(ModelSource(**where))
    assert TOKEN not in str(error.value)
    assert "model" not in where or all(remedy in str(error.value) for remedy in REMEDIES)
    return str(error.value)


def test_a_folder_or_a_repository_without_a_model_is_rejected(tmp_path, cache, serve):
    serve(hub_of({"config.json": b"{}"}))
    assert "lacks a config.json or weights" in message_for(model=NAME)
    assert "not a folder" in message_for(path=str(tmp_path / "none"))
    assert "config.json or modules.json" in message_for(path=str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    assert "weights" in message_for(path=str(tmp_path))


@pytest.mark.parametrize("offline", [True, False])
@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_a_cached_model_needs_no_hub(cache, tiny, monkeypatch, offline, revision):
    use_hub_cache(monkeypatch, cache, offline)
    snapshot = hub_cache(cache, NAME, tiny)
    assert models.locate_model(ModelSource(NAME, revision)) == snapshot
    assert models.fingerprint(ModelSource(NAME, revision)) == {"model": NAME, "commit": COMMIT}


def test_an_incomplete_model_in_the_cache_is_not_used(cache, tiny):
    snapshot = hub_cache(cache, NAME, tiny)
    (snapshot / "model.safetensors").unlink()
    message = message_for(model=NAME, revision="main")
    assert "127.0.0.1 cannot be reached (ConnectError)" in message
    assert "--revision main" in message


def test_the_hub_is_named_before_it_is_asked_unless_in_offline_mode(cache, monkeypatch, capsys):
    monkeypatch.delenv("HARNESS_HOSTS_NAMED", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://hub.invalid")
    message_for(model=NAME)
    assert capsys.readouterr().err == f"Talks to hub.invalid ({NAME})\n"
    use_hub_cache(monkeypatch, cache, offline=True)
    message = message_for(model=NAME)
    assert "HF_HUB_OFFLINE" in message
    assert str(cache) in message
    assert capsys.readouterr().err == ""


def test_a_hub_that_never_responds_times_out_and_an_invalid_name_is_explained(cache, monkeypatch):
    assert "not a valid name on the hub" in message_for(model="-odd-")
    monkeypatch.setattr(models, "TIMEOUT", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert "cannot be reached (ReadTimeout)" in message_for(model=NAME)


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (404, "RepoNotFound", "has no model of that name"),
        (404, "RevisionNotFound", "no such revision"),
        (403, "GatedRepo", "accept its terms"),
        (500, "", "127.0.0.1 returned status 500"),
    ],
)
def test_errors_of_the_hub_are_explained(cache, serve, status, code, words):
    serve(lambda path: (status, {"X-Error-Code": code}, b"{}"))
    assert words in message_for(model=NAME, revision="v2")


def hub_of(files):
    """The responses of a hub that has one model."""
    siblings = [{"rfilename": name} for name in files]
    tree = [{"type": "file", "path": n, "size": len(b), "oid": f"{i:040x}"} for i, (n, b) in enumerate(files.items())]

    def answer(path):
        if path in (f"/api/models/{NAME}", f"/api/models/{NAME}/revision/main"):
            return 200, {}, json.dumps({"id": NAME, "sha": COMMIT, "siblings": siblings}).encode()
        if path == f"/api/models/{NAME}/tree/{COMMIT}":
            return 200, {}, json.dumps(tree).encode()
        _, found, name = path.partition(f"/{NAME}/resolve/{COMMIT}/")
        if found and name in files:
            return 200, {"ETag": f'"{hash(name) & 0xFFFFFFFF:x}"', "X-Repo-Commit": COMMIT}, files[name]
        return 404, {}, b""

    return answer


@pytest.mark.slow
def test_a_model_is_downloaded_once_and_without_unused_files(cache, serve, tiny, monkeypatch):
    files = {str(path.relative_to(tiny)): path.read_bytes() for path in tiny.rglob("*") if path.is_file()}
    unused = dict.fromkeys(["README.md", ".gitattributes", "onnx/model.onnx", "imgs/a.jpg", "tf_model.h5"], b"x")
    serve(hub_of(files | unused))
    folder = models.locate_model(ModelSource(NAME))
    assert folder.name == COMMIT
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == files
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert models.locate_model(ModelSource(NAME)) == folder


def test_a_folder_is_identified_by_the_files_that_are_loaded(tmp_path, monkeypatch):
    folder = tiny_bge_m3(tmp_path / "tiny")

    def checksum(folder=folder):
        [found] = models.fingerprint(ModelSource(path=str(folder))).values()
        return found

    before = checksum()
    for name in ("README.md", ".hidden", "onnx/model.onnx", "1_Pooling/README.md", "picture.png"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("other")
    with monkeypatch.context() as patch:
        patch.setattr(models.hashlib, "file_digest", None)  # reading an unchanged file again would fail
        assert checksum() == before
    assert checksum(tiny_bge_m3(tmp_path / "copy")) == before, "the location does not matter"
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)  # same size
    seen = {before, checksum()}
    (folder / "tokenizer.json").write_text("{}")
    seen.add(checksum())
    (folder / "sparse_linear.pt").rename(folder / "renamed.pt")
    assert len(seen | {checksum()}) == 4
    found = NeuralModel.identify(model=NAME, revision=COMMIT, max_length=512, device="cpu", batch_tokens=7)
    assert found == {"model": NAME, "commit": COMMIT, "dtype": "float32", "max_length": 512}
    assert NeuralModel(NAME, max_length=3, device="cpu").batch_limit() == 1024


@pytest.mark.skipif(torch.cuda.is_available() or sys.platform != "linux", reason="there may be a GPU")
def test_without_a_gpu_torch_is_not_imported():
    code = (
        "import sys; from retrievers.dense import models; "
        "assert models.device_for(None) == 'cpu'; assert models.dtype_for('auto', None) == 'float32'; "
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def fake_torch(monkeypatch, gpus=0, mps=False, bfloat16=True):
    cuda = SimpleNamespace(
        is_available=lambda: gpus > 0,
        device_count=lambda: gpus,
        is_bf16_supported=lambda including_emulation: bfloat16 or including_emulation,
        device=contextlib.nullcontext,
    )
    backends = SimpleNamespace(mps=SimpleNamespace(is_available=lambda: mps))
    fake = SimpleNamespace(cuda=cuda, backends=backends, __version__="2.0")
    monkeypatch.setattr(models, "_torch", lambda: fake)
    monkeypatch.setattr(models, "_may_have_gpu", lambda: True)


GPU, TWO, OLD, MPS = {"gpus": 1}, {"gpus": 2}, {"gpus": 1, "bfloat16": False}, {"mps": True}


@pytest.mark.parametrize(
    ("machine", "device", "expected", "dtypes"),
    [
        ({}, None, "cpu", {"auto": "float32", "float32": "float32", "bfloat16": "bfloat16"}),
        (GPU, "cpu", "cpu", {"auto": "float32"}),
        (GPU, None, "cuda", {"auto": "bfloat16", "float32": "float32", "float16": "float16"}),
        (TWO, "cuda:1", "cuda:1", {"auto": "bfloat16"}),
        (OLD, "cuda:0", "cuda:0", {"auto": "float16"}),
        (MPS, None, "mps", {"auto": "float32"}),
        (MPS, "mps", "mps", {}),
    ],
)
def test_the_device_and_the_number_format(monkeypatch, machine, device, expected, dtypes):
    fake_torch(monkeypatch, **machine)
    assert models.device_for(device) == expected
    assert {dtype: models.dtype_for(dtype, device) for dtype in dtypes} == dtypes


def test_a_device_that_is_missing_and_float16_on_the_cpu_are_refused(monkeypatch):
    for machine, device in ((TWO, "cuda:2"), ({}, "cuda"), ({}, "mps")):
        fake_torch(monkeypatch, **machine)
        with pytest.raises(BadInput, match=f"device is '{device}'"):
            models.device_for(device)
    with pytest.raises(BadInput, match=r"dtype=float16.*float32"):
        models.dtype_for("float16", "cpu")


@pytest.mark.parametrize(
    ("kind", "arguments", "words"),
    [
        (NeuralModel, {"model": None}, r"give model \(the name"),
        (NeuralModel, {"model": "/data/bge-m3"}, "For a folder, set path"),
        (NeuralModel, {"model": "a b/c"}, "name of a model on the hub"),
        (NeuralModel, {"dtype": "bfloat"}, "Did you mean 'bfloat16'"),
        (NeuralModel, {"device": "gpu"}, "give cpu, cuda"),
        (NeuralModel, {"device": "cuda:x"}, "give cpu, cuda"),
        (NeuralModel, {"batch_tokens": 0}, "batch_tokens is 0"),
        (NeuralModel, {"batch_tokens": 1.5}, "batch_tokens is 1.5"),
        (NeuralModel, {"max_length": 2}, "max_length is 2"),
        (NeuralModel, {"max_length": True}, "max_length is True"),
        *((kind, {"dtype": "half"}, "dtype is 'half'") for kind in (SentenceEncoder, CrossEncoder, Sparse)),
        *((kind, {"depth": bad}, "depth is") for kind in (CrossEncoder, MultiVector) for bad in (0, -1, True, 2.5)),
    ],
)
def test_bad_arguments(kind, arguments, words):
    with pytest.raises(BadInput, match=words):
        kind(**({"model": NAME} | arguments))


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 200))
def test_each_text_is_in_one_batch_and_batches_respect_the_limit(lengths, limit):
    lengths = np.array(lengths, np.int64)
    batches = list(models.token_batches(lengths, limit))
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * lengths[batch].max() <= limit
    longest = [lengths[batch].max() for batch in batches]
    assert longest == sorted(longest, reverse=True)
    # The next text would not have fitted: batches are as large as possible.
    for batch in batches[:-1]:
        assert (len(batch) + 1) * max(1, lengths[batch].max()) > limit


def test_inputs_are_batched_by_length_and_done_batches_are_left_out(monkeypatch):
    monkeypatch.setattr(models, "CHUNK", 4)
    characters = [3, 9, 1, 9, 5, 7]  # sorted: 1, 3, 5, 4 in the first chunk; 0, 2 in the second
    counted = []

    def count_tokens(places):
        counted.append(places.tolist())
        return np.array([characters[place] for place in places])

    def batches(done=None):
        counted.clear()
        return [places.tolist() for places in models.batches_by_length(characters, count_tokens, 18, done)]

    assert batches() == [[1, 3], [5, 4], [0, 2]]
    assert counted == [[1, 3, 5, 4], [0, 2]]
    assert batches(np.array([True, True, True, False, False, True])) == [[1, 3], [5, 4]]
    assert counted == [[1, 3, 5, 4]], "a chunk whose inputs are all done is not tokenized"
    assert batches(np.array([False, True, False, True, False, False])) == [[5, 4], [0, 2]]
    assert list(models.batches_by_length([], count_tokens, 18)) == []


def test_the_length_is_checked_and_the_out_of_memory_error_says_what_to_lower():
    size = {"num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 8}
    bert = BertConfig(hidden_size=4, intermediate_size=4, max_position_embeddings=12, **size)
    roberta = RobertaConfig(hidden_size=4, intermediate_size=4, max_position_embeddings=14, pad_token_id=1, **size)
    relative = T5Config(d_model=4, d_kv=4, d_ff=4, num_layers=1, num_heads=1, vocab_size=8)
    counts = [models.positions(AutoModel.from_config(config)) for config in (bert, roberta, relative)]
    assert counts == [12, 12, sys.maxsize]
    models.check_length(12, 12)
    models.check_length(None, 12)
    with pytest.raises(BadInput, match="set max_length=12"):
        models.check_length(13, 12)
    with pytest.raises(BadInput, match="batch_tokens"), models.computing():
        raise torch.OutOfMemoryError("no room")
    with models.computing():
        assert not (torch.ones(1, requires_grad=True) * 2).requires_grad


@pytest.mark.parametrize("content", ["{}", "not json"])
def test_a_folder_that_cannot_be_loaded_and_a_missing_package_are_named(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(BadInput, match=f"{tmp_path} holds no model that transformers can load"):  # noqa: SIM117
        with models.loading(tmp_path, "transformers"):
            AutoModel.from_pretrained(tmp_path, local_files_only=True)
    with pytest.raises(BadInput, match=r"pip install 'retrieval-harness\[dense\]'"):  # noqa: SIM117
        with models.loading(tmp_path, "no_such_package"):
            pass
