"""Files, identity, device and batches of neural models. Nothing here loads a model.

This module has no `from __future__ import annotations`, which turns annotations into texts: dataclasses of other
modules inherit fields from here, and could not resolve these texts.
"""

import hashlib
import importlib.metadata
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args
from urllib.parse import urlsplit

import numpy as np

from harness.errors import BadInput
from retrievers.base import AtMost, check_choice, check_whole
from retrievers.hosts import name_host

Dtype = Literal["auto", "float32", "bfloat16", "float16"]

# Files that models never load. They are not downloaded, and not part of the checksum.
UNUSED = ("*.md", ".*", "*/.*", "*onnx*", "*openvino*", "tf_model*", "*.h5", "*.msgpack", "*.ot", "*.mlmodel",
          "*.gguf", "*.png", "*.jpg", "*.jpeg", "*.gif", "*.svg", "*.webp", "*.pdf")  # fmt: skip
BatchTokens = Annotated[int, AtMost(10_000_000, "a batch has to fit into memory")]
MaxLength = Annotated[int, AtMost(1_000_000, "no model reads more tokens")]
RerankDepth = Annotated[int, AtMost(100_000, "the model reads every reranked document")]
WEIGHTS = ("*.safetensors", "*.bin")
CPU_BATCH_TOKENS = 1 << 10  # a larger batch does not fit into the cache of a core, which computes it alone
GPU_BATCH_TOKENS = 1 << 15  # this size keeps a large GPU busy, and takes little memory beside a large model
CHUNK = 4096  # number of texts or pairs tokenized and sorted by length at a time
PACKAGES = ("huggingface_hub", "torch", "sentence_transformers")  # these find, download and load models
INSTALL = "pip install 'retrieval-harness[dense]'"
TIMEOUT = 5.0  # seconds to wait for the hub's first response
GPU_DRIVERS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA (two), AMD, WSL

_COMMIT = re.compile(r"[0-9a-f]{40}")
_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_DEVICE = re.compile(r"(cpu|mps|(cuda|xpu)(:\d+)?)")


@dataclass(eq=False)
class ModelSource:
    """The place of a model's files: the Hugging Face hub (and its cache), or a folder.

    model: the name on the hub, such as BAAI/bge-m3; may be None if `path` is given.
    revision: a branch, tag or commit on the hub; None: main.
    path: a folder with the model, in place of `model` and `revision`.
    """

    model: str | None = None
    revision: str | None = None
    path: str | None = None

    def __post_init__(self) -> None:
        if self.model is None and self.path is None:
            raise BadInput("model and path are null: give model (the name of a model on the hub) or path (a folder).")
        if self.model is not None and not _NAME.fullmatch(self.model):
            raise BadInput(
                f"model is {self.model!r}: give the name of a model on the hub, such as BAAI/bge-m3. For a folder, set "
                "path instead."
            )


@dataclass(eq=False)
class NeuralModel(ModelSource):
    """Base of components that compute with a model. `ModelSource` explains the arguments model, revision and path.

    max_length: maximum number of tokens per text, with special tokens, from 3 to the model's limit; None: this limit.
    dtype: the number format of the computation; `auto`: see `dtype_for`.
    device: cpu, cuda, cuda:1, mps, ...; None: the best available device.
    batch_tokens: number of tokens in a batch, padding included, at least 1; None: 1,024 on cpu, 32,768 elsewhere.
    """

    max_length: MaxLength | None = None
    dtype: Dtype = "auto"
    device: str | None = None
    batch_tokens: BatchTokens | None = None

    version = 1
    packages: ClassVar[tuple[str, ...]] = ("sentence-transformers", "transformers")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("dtype", self.dtype, get_args(Dtype))
        if self.device is not None and not _DEVICE.fullmatch(self.device):
            raise BadInput(f"device is {self.device!r}: give cpu, cuda, cuda:1, mps, or null for the best available.")
        for name, value, least in (("batch_tokens", self.batch_tokens, 1), ("max_length", self.max_length, 3)):
            if value is not None:
                check_whole(name, value, f"a number of tokens, at least {least}, or null", least)

    @classmethod
    def identify(cls, **arguments: Any) -> dict[str, Any]:
        return cls(**arguments).identity()

    def identity(self) -> dict[str, Any]:
        """Return the settings that decide the outputs: the model's files, the number format and the maximum length."""
        return {**fingerprint(self), "dtype": dtype_for(self.dtype, self.device), "max_length": self.max_length}

    def require_model(self) -> None:
        """Raise BadInput, with remedies, if the model does not exist. Nothing is downloaded."""
        if self.path is not None:
            locate_model(self)
        elif _cached(self) is None:
            _ask_hub(self)

    def batch_limit(self) -> int:
        return self.batch_tokens or (CPU_BATCH_TOKENS if device_for(self.device) == "cpu" else GPU_BATCH_TOKENS)


def check_depth(depth: int) -> None:
    check_whole("depth", depth, "the number of documents to rerank, at least 1, or use rerank=none", 1)


def locate_model(source: ModelSource) -> Path:
    """Return the folder of a model, after downloading it if necessary. Raise BadInput, with remedies, if that fails."""
    if source.path is None:
        if cached := _cached(source):
            return cached
        downloaded = _ask_hub(source, download=True)
        if downloaded is None or not _is_model(downloaded):
            raise _unavailable(source, f"it lacks a config.json or weights ({' or '.join(WEIGHTS)})")
        return downloaded
    folder = Path(source.path).expanduser()
    if not folder.is_dir():
        raise BadInput(f"path is {source.path!r}, which is not a folder. Give the folder with the model's config.json.")
    if not _is_model(folder):
        raise BadInput(
            f"path is {source.path!r}: the folder holds no model. It needs config.json or modules.json, and weights "
            f"({' or '.join(WEIGHTS)})."
        )
    return folder


def here(source: ModelSource) -> Path | None:
    """Return the folder of a model on this machine, or None. The hub is not asked."""
    if source.path is None:
        return _cached(source)
    folder = Path(source.path).expanduser()
    return folder if _is_model(folder) else None


def fingerprint(source: ModelSource) -> dict[str, str]:
    """Return the identity of a model: {"model": name, "commit": 40 hex digits}, or {"sha256": ...} for a folder.

    If the revision is a commit, no file of the model is read. The checksum covers the relative names and the contents
    of all files that UNUSED does not match. A file is read again only if its size or modification time changes.
    """
    if source.path is None:
        known = _COMMIT.fullmatch(source.revision or "")
        return {"model": str(source.model), "commit": known[0] if known else locate_model(source).name}
    folder = locate_model(source)
    checksum = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if file.is_file() and not any(fnmatch(name, pattern) for pattern in UNUSED):
            stat = file.stat()
            checksum.update(f"{_file_digest(file, stat.st_size, stat.st_mtime_ns)} {name}\n".encode())
    return {"sha256": checksum.hexdigest()}


def device_for(device: str | None) -> str:
    """Return `device`; for None, the first available of cuda, mps, cpu. Raise BadInput if torch does not find it."""
    if device == "cpu" or (device is None and not _may_have_gpu()):
        return "cpu"
    torch = _torch()  # importing torch is slow, so the lines above avoid it
    if device is None:
        return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    kind, _, number = device.partition(":")
    count = torch.backends.mps.is_available() if kind == "mps" else getattr(torch, kind).device_count()
    if int(number or 0) >= count:
        raise BadInput(
            f"device is {device!r}, which torch {torch.__version__} does not find on this machine. Use null or cpu."
        )
    return device


def dtype_for(dtype: str, device: str | None) -> str:
    """Return `dtype`; for `auto`, float32 on cpu and mps, bfloat16 on a GPU that supports it, else float16."""
    if dtype == "float32":
        return dtype
    device = device_for(device)
    if dtype == "auto":
        if not device.startswith("cuda"):
            return "float32" if device in ("cpu", "mps") else "bfloat16"
        torch = _torch()
        with torch.cuda.device(device):
            return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float16"
    if device == "cpu" and dtype == "float16":
        raise BadInput("dtype=float16 is a hundred times slower on cpu: use dtype=float32 or dtype=bfloat16.")
    return dtype


def token_batches(lengths: np.ndarray, limit: int) -> Iterator[np.ndarray]:
    """Yield batches of indices, longest texts first: at most `limit` tokens with padding, or one longer text."""
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        stop = start + max(1, limit // max(1, int(lengths[order[start]])))
        yield order[start:stop]
        start = stop


def batches_by_length(
    characters: Sequence[int],
    count_tokens: Callable[[np.ndarray], np.ndarray],
    limit: int,
    done: np.ndarray | None = None,
) -> Iterator[np.ndarray]:
    """Group N inputs by length into batches of at most `limit` tokens. Yield each batch's indices, int64 [n].

    The longest inputs come first. CHUNK inputs at a time are tokenized, just before their batches are yielded. Batches
    do not depend on `done`, so an interrupted computation resumes with the same batches.

    characters: the length of each of the N inputs.
    count_tokens: indices (int64 [n]) -> numbers of tokens (int [n]).
    done: bool [N]; batches whose inputs are all done are left out. None: no input is done.
    """
    left = np.ones(len(characters), bool) if done is None else ~done
    order = np.argsort(-np.asarray(characters), kind="stable")
    for start in range(0, len(order), CHUNK):
        chunk = order[start : start + CHUNK]
        if left[chunk].any():
            for places in token_batches(count_tokens(chunk), limit):
                if left[chunk[places]].any():
                    yield chunk[places]


def check_length(max_length: int | None, most: int) -> None:
    if max_length is not None and max_length > most:
        raise BadInput(f"max_length is {max_length}, but the model takes {most} tokens at most: set max_length={most}.")


def positions(transformer: Any) -> int:
    """Return the maximum number of tokens of a transformer's input; sys.maxsize if there is no limit."""
    from torch.nn import Embedding

    for module in transformer.modules():
        table = getattr(module, "position_embeddings", None)
        if isinstance(table, Embedding):  # in RoBERTa and similar models, the first position is padding_idx + 1
            return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
    return int(getattr(transformer.config.get_text_config(), "max_position_embeddings", sys.maxsize))


@contextmanager
def loading(folder: Path, package: str) -> Iterator[None]:
    """Let the `with` block load a model from `folder` silently. Raise BadInput if `package` is missing or fails."""
    _need(package)
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # loading takes about a second, so no bar is needed
    try:
        yield
    except BadInput:
        raise
    except (OSError, ValueError) as error:
        raise BadInput(f"{folder} holds no model that {package.replace('_', '-')} can load: {error}") from error
    finally:
        if shown:
            logging.enable_progress_bar()


def not_finite(what: str) -> BadInput:
    return BadInput(
        f"the model's output for {what} is not a finite number. If the model computes in half "
        "precision, use dtype=float32; otherwise its weights are damaged."
    )


def check_scores(pairs: Sequence[tuple[str, str]], scores: np.ndarray) -> None:
    """Raise BadInput that names a pair (query, document), unless all scores are finite."""
    for query, document in (pairs[place] for place in np.flatnonzero(~np.isfinite(scores)).tolist()):
        raise not_finite(f"the query {query[:60]!r} with the document {document[:60]!r}")


@contextmanager
def computing() -> Iterator[None]:
    """Let the `with` block compute without gradients. Raise BadInput if a batch does not fit into memory."""
    import torch

    try:
        with torch.inference_mode():
            yield
    except torch.OutOfMemoryError:
        raise out_of_memory() from None


def out_of_memory() -> BadInput:
    return BadInput("a batch does not fit into the device's memory: lower batch_tokens, or max_length.")


def _is_model(folder: Path) -> bool:
    described = (folder / "config.json").is_file() or (folder / "modules.json").is_file()
    return described and any(next(folder.rglob(pattern), None) for pattern in WEIGHTS)


def _cached(source: ModelSource) -> Path | None:
    _need("huggingface_hub")
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        found = _snapshot(source, local_files_only=True)
    except (LocalEntryNotFoundError, HFValidationError):
        return None
    return found if _is_model(found) else None


def _snapshot(source: ModelSource, **options: Any) -> Path:
    from huggingface_hub import snapshot_download

    ignored = list(UNUSED)
    return Path(snapshot_download(str(source.model), revision=source.revision, ignore_patterns=ignored, **options))


def _ask_hub(source: ModelSource, download: bool = False) -> Path | None:
    """Raise BadInput if the hub lacks the model. If `download`, download the model and return its folder, else None."""
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError

    # The base classes of the hub's own error: OSError, and the connection error of the hub's HTTP library.
    connection_errors: tuple[Any, ...] = HfHubHTTPError.__bases__
    if not constants.HF_HUB_OFFLINE:
        name_host(constants.ENDPOINT, str(source.model))
    try:
        HfApi().model_info(str(source.model), revision=source.revision, timeout=TIMEOUT)
        return _snapshot(source) if download else None  # the download has no time limit
    except (*connection_errors, EntryNotFoundError, HFValidationError) as error:
        raise _unavailable(source, _reason(error)) from None


def _reason(error: Exception) -> str:
    """Return why a model is unavailable, without the error's own text, which may quote URLs and headers."""
    from huggingface_hub import constants, errors

    host = urlsplit(constants.ENDPOINT).hostname
    lacking = f"the cache {constants.HF_HUB_CACHE} does not hold it"
    for kind, reason in (
        (errors.OfflineModeIsEnabled, f"offline mode is on (HF_HUB_OFFLINE) and {lacking}"),
        (errors.GatedRepoError, f"{host} gives access only after you accept its terms and log in (hf auth login)"),
        (errors.RepositoryNotFoundError, f"{host} has no model of that name, or it is private (hf auth login)"),
        (errors.RevisionNotFoundError, "it has no such revision"),
        (errors.HFValidationError, "that is not a valid name on the hub"),
    ):
        if isinstance(error, kind):
            return reason
    if isinstance(error, errors.HfHubHTTPError):
        return f"{host} returned status {error.response.status_code}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{host} cannot be reached ({type(error).__name__}) and {lacking}"


def _unavailable(source: ModelSource, reason: str) -> BadInput:
    option, at = (f" --revision {source.revision}", f" at {source.revision}") if source.revision else ("", "")
    return BadInput(
        f"the model {source.model}{at} is unavailable: {reason}. "
        f"Ways out: (1) Run `hf download {source.model}{option}` on a machine that reaches the hub and copy its cache "
        "here (HF_HOME is the cache's folder); HF_ENDPOINT can name a mirror. "
        "(2) Copy the model to a folder and set path, such as encoder=local encoder.path=FOLDER or "
        "rerank.path=FOLDER. (3) Do without the hub: use encoder=use_multilingual, encoder=lsa, "
        "retriever=hybrid_light, retriever=hybrid_lexical or rerank=none."
    )


@lru_cache(maxsize=4096)
def _file_digest(file: Path, size: int, modified: int) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _may_have_gpu() -> bool:
    _need("torch")
    if importlib.metadata.version("torch").endswith("+cpu"):
        return False
    return sys.platform != "linux" or any(Path(driver).exists() for driver in GPU_DRIVERS)


def _torch() -> Any:
    _need("torch")
    import torch

    return torch


def _need(package: str) -> None:
    if find_spec(package) is None:
        raise BadInput(
            f"models need the package {package}: {INSTALL}. "
            "Without it, use rerank=none and either another retriever (retriever=bm25, hybrid_lexical or hybrid_light) "
            "or another encoder (encoder=use_multilingual or lsa)."
        )
