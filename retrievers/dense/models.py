"""The folders that neural models lie in: where they are, what tells them apart, and how they are computed.

Models come from the Hugging Face hub (through its cache) or from a folder. Nothing here loads one.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from retrievers.base import BadInput, did_you_mean

# Files of a model that no one loads here: neither downloaded nor part of its checksum.
UNUSED = ("*.md", ".*", "*/.*", "*onnx*", "*openvino*", "tf_model*", "*.h5", "*.msgpack", "*.ot", "*.mlmodel",
          "*.gguf", "*.png", "*.jpg", "*.jpeg", "*.gif", "*.svg", "*.webp", "*.pdf")  # fmt: skip
WEIGHTS = ("*.safetensors", "*.bin")
DTYPES = ("auto", "float32", "bfloat16", "float16")
TIMEOUT = 5.0  # seconds for the hub's first answer
GPU_DRIVERS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA, AMD, Windows' Linux

_COMMIT = re.compile(r"[0-9a-f]{40}")
_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
_DEVICE = re.compile(r"(cpu|mps|(cuda|xpu)(:\d+)?)")


def check_arguments(
    model: str | None,
    revision: str | None,
    path: str | None,
    max_length: int | None,
    dtype: str,
    device: str | None,
    batch_tokens: int | None,
) -> None:
    """What the constructor of anything that holds a model checks; BadInput, and nothing is loaded."""
    if model is None and path is None:
        raise BadInput("model and path are null: give one of them, the name of a model on the hub or a folder.")
    if model is not None and not _NAME.fullmatch(model):
        raise BadInput(f"model is {model!r}: give a name of the hub, such as BAAI/bge-m3. A folder is given as path.")
    if dtype not in DTYPES:
        raise BadInput(f"dtype is {dtype!r}: choose one of {', '.join(DTYPES)}.{did_you_mean(dtype, DTYPES)}")
    if device is not None and not _DEVICE.fullmatch(device):
        raise BadInput(f"device is {device!r}: give cpu, cuda, cuda:1, mps, or null for the best there is.")
    for name, value, least in (("max_length", max_length, 3), ("batch_tokens", batch_tokens, 1)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise BadInput(f"{name} is {value!r}: give a number of tokens, at least {least}, or null.")


def identify(
    model: str | None,
    revision: str | None,
    path: str | None,
    max_length: int | None,
    dtype: str,
    device: str | None,
    **_: Any,
) -> dict[str, Any]:
    """What decides the outputs of a model, of its arguments: the files, the number format and the length."""
    files = fingerprint(model, revision, path)
    return {**files, "dtype": dtype_for(dtype, device), "max_length": max_length}


def locate(model: str | None, revision: str | None, path: str | None) -> Path:
    """The folder of a model: `path` itself, or the snapshot of `model` in the hub's cache, downloaded if need be.

    revision: branch, tag or commit; None for `main`. What the cache holds is taken as it is: a branch is not looked up
    again. BadInput where there is no model, with the ways out.
    """
    if path is None:
        assert model is not None
        return _cached(model, revision) or _downloaded(model, revision)
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise BadInput(f"path is {path!r}, which is no folder. Give the folder that holds the model's config.json.")
    if not _is_model(folder):
        raise BadInput(
            f"path is {path!r}: the folder holds no model. It needs config.json or modules.json, and weights "
            f"({' or '.join(WEIGHTS)})."
        )
    return folder


def fingerprint(model: str | None, revision: str | None, path: str | None) -> dict[str, str]:
    """What tells a model's files apart: {"model": name, "commit": 40 hex}, or {"sha256": ...} of a folder.

    A `revision` of 40 hex digits is taken at its word and needs no file. The checksum covers the relative names and
    the contents of all files but UNUSED ones; within a process a file is read once as long as its size and time stay.
    """
    if path is None:
        assert model is not None
        whole = revision is not None and _COMMIT.fullmatch(revision)
        return {"model": model, "commit": str(revision) if whole else locate(model, revision, None).name}
    folder = locate(None, None, path)
    found = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if file.is_file() and not any(fnmatch(name, pattern) for pattern in UNUSED):
            stat = file.stat()
            found.update(f"{_file_digest(file, stat.st_size, stat.st_mtime_ns)} {name}\n".encode())
    return {"sha256": found.hexdigest()}


def device_for(device: str | None) -> str:
    """`device`, or for None the best there is: cuda, else mps, else cpu. BadInput for one that is not there.

    torch is imported only where there may be a GPU: whoever finds all results kept does not wait for it.
    """
    if device == "cpu" or (device is None and not _may_have_gpu()):
        return "cpu"
    torch = _torch()
    if device is None:
        return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    kind, _, number = device.partition(":")
    count = torch.backends.mps.is_available() if kind == "mps" else getattr(torch, kind).device_count()
    if int(number or 0) >= count:
        raise BadInput(f"device is {device!r}, which torch {torch.__version__} does not find here. Use null or cpu.")
    return device


def dtype_for(dtype: str, device: str | None) -> str:
    """`dtype`, or for `auto` float32 on cpu and mps, bfloat16 on a GPU that computes in it, else float16.

    BadInput for float16 on cpu, which is some hundred times slower there, and for bfloat16 where the cpu has none.
    """
    if dtype == "float32":
        return dtype
    device = device_for(device)
    if dtype == "auto":
        return "float32" if device in ("cpu", "mps") else "bfloat16" if _gpu_has_bfloat16(device) else "float16"
    if device == "cpu" and dtype == "float16":
        raise BadInput("dtype=float16 is a hundred times slower on cpu: use float32 or bfloat16.")
    if device == "cpu" and dtype == "bfloat16" and not _torch().ops.mkldnn._is_mkldnn_bf16_supported():
        raise BadInput("dtype=bfloat16: this processor does not compute in bfloat16. Use float32.")
    return dtype


def token_batches(lengths: np.ndarray, limit: int) -> Iterator[np.ndarray]:
    """Places of texts (int64 [n]) in batches of at most `limit` tokens, padding included, or of one text.

    lengths: int [N], the texts' tokens. The longest come first, so that running out of memory shows at once.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        stop = start + max(1, limit // max(1, int(lengths[order[start]])))
        yield order[start:stop]
        start = stop


def check_depth(depth: int) -> None:
    """BadInput unless a reranker's depth is at least 1."""
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
        raise BadInput(f"depth is {depth!r}: give the number of documents to rerank, at least 1, or use rerank=none.")


def check_length(max_length: int | None, config: Any, tokenizer: Any) -> None:
    """BadInput if max_length is more than a loaded model takes."""
    if max_length is None:
        return
    # RoBERTa's positions begin behind the padding token's number.
    shift = config.pad_token_id + 1 if "roberta" in config.model_type else 0
    most = min(getattr(config, "max_position_embeddings", max_length + shift) - shift, tokenizer.model_max_length)
    if max_length > most:
        raise BadInput(f"max_length is {max_length}, but the model takes {most} tokens at most: set max_length={most}.")


@contextmanager
def loading(folder: Path, package: str) -> Iterator[None]:
    """Quietly; BadInput where `package` is not installed or cannot read the model in `folder`."""
    _need(package)
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # a bar of a second, for what takes a second
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
    """The error of a model that gave NaN or infinity for `what`."""
    return BadInput(
        f"the model's output for {what} is not a finite number. If it is computed in half precision, use "
        "dtype=float32; else its weights are damaged."
    )


def pair(query: str, document: str) -> str:
    """The beginnings of a pair's texts, for messages."""
    return f"the query {query[:60]!r} with the document {document[:60]!r}"


@contextmanager
def computing() -> Iterator[None]:
    """Without gradients; BadInput where the memory does not hold a batch."""
    import torch

    try:
        with torch.inference_mode():
            yield
    except torch.OutOfMemoryError:
        raise BadInput("the device's memory does not hold a batch: lower batch_tokens, or max_length.") from None


def batch_limit(batch_tokens: int | None, device: str | None) -> int:
    """`batch_tokens`, or for None 2,048 on cpu, where more falls out of the processor's cache, and 32,768 on a GPU."""
    return batch_tokens or (1 << 11 if device_for(device) == "cpu" else 1 << 15)


def _is_model(folder: Path) -> bool:
    """Whether the folder holds a model's config and weights: a download that broke off may lack either."""
    described = (folder / "config.json").is_file() or (folder / "modules.json").is_file()
    return described and any(next(folder.rglob(pattern), None) for pattern in WEIGHTS)


def _cached(model: str, revision: str | None) -> Path | None:
    """The snapshot in the hub's cache, or None if that holds none or a part of one."""
    _need("huggingface_hub")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        found = snapshot_download(model, revision=revision, local_files_only=True, ignore_patterns=list(UNUSED))
    except (LocalEntryNotFoundError, HFValidationError):
        return None
    return Path(found) if _is_model(Path(found)) else None


def _downloaded(model: str, revision: str | None) -> Path:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError

    # The base classes of the hub's errors are that of its HTTP library, whichever that is, and OSError.
    lost: tuple[Any, ...] = HfHubHTTPError.__bases__
    try:
        HfApi().model_info(model, revision=revision, timeout=TIMEOUT)  # the download itself would wait without end
        folder = Path(snapshot_download(model, revision=revision, ignore_patterns=list(UNUSED)))
    except (*lost, EntryNotFoundError, HFValidationError) as error:
        raise BadInput(_ways_out(model, revision, _reason(error))) from None
    if not _is_model(folder):
        raise BadInput(_ways_out(model, revision, f"it lacks a config.json or weights ({' or '.join(WEIGHTS)})"))
    return folder


def _reason(error: Exception) -> str:
    """Why a model could not be had, in few words; never the error's text, which may quote addresses and headers."""
    from huggingface_hub import constants
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    host = urlsplit(constants.ENDPOINT).hostname
    if isinstance(error, OfflineModeIsEnabled):
        return f"offline mode is on (HF_HUB_OFFLINE) and the cache {constants.HF_HUB_CACHE} does not hold it"
    if isinstance(error, GatedRepoError):
        return f"{host} gives it only to those who accepted its terms and sent their token (hf auth login)"
    if isinstance(error, RepositoryNotFoundError):
        return f"{host} has no model of that name, or shows it only with a token (hf auth login)"
    if isinstance(error, RevisionNotFoundError):
        return "it has no such revision"
    if isinstance(error, HFValidationError):
        return "that is no name of the hub"
    if isinstance(error, HfHubHTTPError):
        return f"{host} answered {error.response.status_code}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{host} cannot be reached ({type(error).__name__}) and the cache {constants.HF_HUB_CACHE} does not hold it"


def _ways_out(model: str, revision: str | None, reason: str) -> str:
    option = f" --revision {revision}" if revision else ""
    return (
        f"the model {model}{f' at {revision}' if revision else ''} cannot be had: {reason}. Ways out: "
        f"(1) fill the hub's cache on a machine that reaches the hub, `hf download {model}{option}`, and copy it here "
        "(HF_HOME names its folder); HF_ENDPOINT can name a mirror. "
        "(2) Copy the model to a folder and name that as path, such as encoder=local encoder.path=FOLDER or "
        "rerank.path=FOLDER. (3) Do without: encoder=lsa or retriever=hybrid_lexical need no model, nor does "
        "rerank=none."
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


def _gpu_has_bfloat16(device: str) -> bool:
    torch = _torch()
    if not device.startswith("cuda"):
        return True
    with torch.cuda.device(device):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


def _torch() -> Any:
    _need("torch")
    import torch

    return torch


def _need(package: str) -> None:
    if find_spec(package) is None:
        raise BadInput(
            f"models need the package {package}: pip install 'retrieval-harness[dense]'. "
            "Without it: retriever=bm25, retriever=hybrid_lexical, or encoder=lsa, and rerank=none."
        )
