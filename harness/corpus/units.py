"""The units that the size of a chunk counts: characters, kiwi's morphemes, or the tokens of a model's tokenizer."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.errors import BadInput
from retrievers.lexical.tokenize import kiwi_model

BATCH = 1000  # texts that are tokenized at a time
KIWI = ("kiwipiepy", "kiwipiepy_model")
FILE = "tokenizer.json"


def morphemes(texts: Sequence[str]) -> Iterator[list[int]]:
    """Where each of kiwi's morphemes begins, punctuation included, for each text."""
    return ([one.start for one in tokens] for tokens in kiwi_model(None).tokenize(texts))


def tokens(texts: Sequence[str], tokenizer: str) -> Iterator[list[int]]:
    """Where each token begins, without special tokens, for each text. tokenizer: as `Chunking` has it."""
    model, _ = load_tokenizer(tokenizer)
    for first in range(0, len(texts), BATCH):
        try:
            batch = model.encode_batch(texts[first : first + BATCH], add_special_tokens=False)
        except Exception as error:  # the library raises nothing narrower
            raise BadInput(f"chunk.tokenizer={tokenizer} counts no tokens: {error!s:.200}.") from None
        for encoded in batch:
            yield [start for start, _ in encoded.offsets]


def kiwi_versions() -> dict[str, str]:
    """Versions of the packages that decide kiwi's sentences and morphemes."""
    return {name: importlib.metadata.version(name) for name in KIWI}


@functools.lru_cache(maxsize=1)
def load_tokenizer(tokenizer: str) -> tuple[Any, str]:
    """A tokenizer and the sha256 of its file. BadInput where it cannot be had.

    tokenizer: a `tokenizer.json`, a folder that holds one, or a name on the Hugging Face hub.
    """
    if find_spec("tokenizers") is None:
        raise BadInput(
            "chunk.unit=tokens needs the package tokenizers: pip install 'retrieval-harness[dense]'. Without it: "
            "chunk.unit=characters or morphemes."
        )
    from tokenizers import Tokenizer

    file = _located(tokenizer)
    content = file.read_bytes()
    try:
        model = Tokenizer.from_str(content.decode())
    except Exception as error:  # the library raises nothing narrower
        raise BadInput(f"{file} is no tokenizer: {str(error) or type(error).__name__:.200}.") from None
    model.no_truncation()
    model.no_padding()
    return model, hashlib.sha256(content).hexdigest()


def _located(tokenizer: str) -> Path:
    """The tokenizer's file, from the hub's cache or the hub if there is no such file or folder."""
    path = Path(tokenizer)
    if path.is_file():
        return path
    if path.is_dir():
        if not (path / FILE).is_file():
            raise BadInput(f"chunk.tokenizer={tokenizer}: the folder holds no {FILE}. Name a folder or file with one.")
        return path / FILE
    return _from_hub(tokenizer)


def _from_hub(name: str) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    connection_errors: tuple[Any, ...] = HfHubHTTPError.__bases__
    try:
        return Path(hf_hub_download(name, FILE))
    except (*connection_errors, LocalEntryNotFoundError, HFValidationError) as error:
        raise BadInput(
            f"chunk.tokenizer={name} is no file or folder, and the hub gives none ({type(error).__name__}). "
            f"Ways out: (1) run `hf download {name} {FILE}` on a machine that reaches the hub, copy the file here and "
            f"name it; (2) chunk.unit=characters or morphemes, which need no model."
        ) from None
