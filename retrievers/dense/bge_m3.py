"""The sparse and the multi-vector head of bge-m3 (Chen et al. 2024, BGE M3-Embedding, arXiv:2402.03216).

The folder of such a model holds a transformer, sparse_linear.pt and colbert_linear.pt. Its dense head is a plain
sentence-transformers model and needs nothing of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from retrievers.base import BadInput, DocIds, Document, Progress, Query, Ranking
from retrievers.dense import models
from retrievers.dense.encoders import encodable
from retrievers.dense.token_weights import Blocks, Postings, Weights, greatest, write_whole

if TYPE_CHECKING:
    import torch


Dtype = Literal["auto", "float32", "bfloat16", "float16"]

CHUNK = 4096  # texts tokenised and sorted by length at a time
QUERY_CHARACTERS = 1 << 18  # of queries whose vectors are held at a time: a gigabyte at 1024 dimensions at most


class _Batch(NamedTuple):
    """Texts and what the transformer makes of them; mask is true where a text has a token.

    rows: int64 [n]. ids: int64 [n, L]. mask: bool [n, L]. states: float32 [n, L, H].
    """

    rows: np.ndarray
    ids: torch.Tensor
    mask: torch.Tensor
    states: torch.Tensor


class _Transformer:
    """The transformer and a linear head of a model's folder, loaded at the first text."""

    def __init__(
        self,
        head: str,
        model: str | None,
        revision: str | None,
        path: str | None,
        max_length: int,
        dtype: str,
        device: str | None,
        batch_tokens: int | None,
    ) -> None:
        models.check_arguments(model, revision, path, max_length, dtype, device, batch_tokens)
        self._arguments = (model, revision, path, max_length, dtype, device)
        self._head, self._batch_tokens = head, batch_tokens

    def identify(self) -> dict[str, Any]:
        return models.identify(*self._arguments)

    @cached_property
    def device(self) -> str:
        return models.device_for(self._arguments[-1])

    @cached_property
    def folder(self) -> Path:
        return models.locate(*self._arguments[:3])

    @cached_property
    def tokenizer(self) -> Any:
        with models.loading(self.folder, "transformers"):
            from transformers import AutoTokenizer

            return AutoTokenizer.from_pretrained(self.folder, local_files_only=True, padding_side="right")

    @cached_property
    def special(self) -> list[int]:
        """The tokens that have no weight of their own."""
        known = self.tokenizer
        ids = [known.cls_token_id, known.eos_token_id, known.pad_token_id, known.unk_token_id]
        return [token for token in ids if token is not None]

    @cached_property
    def model(self) -> Any:
        *_, max_length, dtype, device = self._arguments
        with models.loading(self.folder, "transformers"):
            import torch
            from transformers import AutoModel

            precision = getattr(torch, models.dtype_for(dtype, device))
            model = AutoModel.from_pretrained(self.folder, dtype=precision, local_files_only=True)
        models.check_length(max_length, model.config, self.tokenizer)
        return model.eval().to(self.device)

    @cached_property
    def head(self) -> torch.nn.Linear:
        """The linear layer, in float32."""
        import torch

        file = self.folder / self._head
        if not file.is_file():
            raise BadInput(
                f"{file} is missing. BAAI/bge-m3 and models trained from it with FlagEmbedding have this file; a "
                "model without it has a dense head only: use retriever=dense."
            )
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
            outputs, inputs = state["weight"].shape
            layer = torch.nn.Linear(inputs, outputs)
            layer.load_state_dict(state)
        except Exception:  # whatever a damaged or hostile file raises; torch's own text tells how to trust it
            raise BadInput(f"{file} does not hold the weights of one linear layer, and nothing else.") from None
        if inputs != self.model.config.hidden_size:
            raise BadInput(f"{file} takes {inputs} numbers, but the model gives {self.model.config.hidden_size}.")
        return layer.float().to(self.device)

    def batches(self, texts: Sequence[str], done: np.ndarray | None = None) -> Iterator[_Batch]:
        """The texts, longest first, in batches that depend on all of `texts`; not those batches that are done.

        done: bool [N].
        """
        limit = models.batch_limit(self._batch_tokens, self.device)
        left = np.ones(len(texts), bool) if done is None else ~done
        order = np.argsort([-len(text) for text in texts], kind="stable")
        for start in range(0, len(order), CHUNK):
            chunk = order[start : start + CHUNK]
            if left[chunk].any():
                some = [encodable(texts[row]) for row in chunk.tolist()]
                ids = self.tokenizer(some, truncation=True, max_length=self._arguments[3])["input_ids"]
                for places in models.token_batches(np.array([len(one) for one in ids]), limit):
                    if left[chunk[places]].any():
                        yield self._run(chunk[places], [ids[place] for place in places])

    def _run(self, rows: np.ndarray, ids: list[list[int]]) -> _Batch:
        padded = self.tokenizer.pad({"input_ids": ids}, return_tensors="pt").to(self.device)
        with models.computing():
            states = self.model(**padded).last_hidden_state.float()
        return _Batch(rows, padded["input_ids"], padded["attention_mask"].bool(), states)


class Sparse:
    """Learned sparse retrieval: each token of a text has a weight, and the tokens that two texts share make the score.

    A token weighs relu(w . h + b), h being the transformer's last state there; a token that stands in a text several
    times has the greatest of its weights, and cls, eos, pad and unk have none. A document scores the sum, over the
    tokens that it shares with the query, of the product of both weights; one that shares none is never returned.
    Equal texts score equally. Scores compare roughly across queries: longer queries reach higher ones.

    model, revision: a name on the hub and its branch, tag or commit; path: a folder in place of both.
    max_length: tokens of a text that count, from 3 to what the model takes. dtype: what the transformer computes in;
    `auto` as models.dtype_for says. device: None for the best there is. batch_tokens: tokens computed at a time,
    padding included; None as models.batch_limit says.
    """

    recorded_as = "retriever/bge_m3_sparse"
    version = 1
    packages = ("transformers",)
    resumes = True

    def __init__(
        self,
        model: str | None,
        revision: str | None = None,
        path: str | None = None,
        max_length: int = 8192,
        dtype: Dtype = "auto",
        device: str | None = None,
        batch_tokens: int | None = None,
    ) -> None:
        self._transformer = _Transformer(
            "sparse_linear.pt", model, revision, path, max_length, dtype, device, batch_tokens
        )
        self._doc_ids: DocIds | None = None
        self.progress: Progress | None = None  # told how encoding goes

    @classmethod
    def identify(cls, **arguments: Any) -> dict[str, Any]:
        """The model's files, the number format and max_length."""
        return models.identify(**arguments)

    def index(self, documents: Sequence[Document], folder: Path) -> None:
        """Index `documents` (ascending doc_id, else ValueError) in `folder`, and be ready to search.

        Goes on from what an interrupted call with the same documents left there. BadInput where the model gives a
        document a weight that is not finite.
        """
        if not (folder / "sparse.json").exists():
            DocIds.save(folder, documents)
            self._build(documents, folder)
            told = json.dumps(self._identity()).encode()
            write_whole(folder / "sparse.json", lambda file: file.write(told))
        Blocks(folder).remove()  # the index is whole: what it was made of can go
        self.load(folder)

    def load(self, folder: Path) -> None:
        """Memory-map what `index` left in `folder`; ValueError if another model or max_length made it."""
        found = json.loads((folder / "sparse.json").read_text(encoding="ascii"))
        if found != self._identity():
            raise ValueError(f"the index in {folder} was made with {found}, not with {self._identity()}")
        self._postings = Postings(
            *(np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in Postings._fields)
        )
        self._doc_ids = DocIds(folder)

    def search(self, queries: Sequence[Query], k: int) -> Ranking:
        """At most k >= 0 documents for each query. BadInput where the model gives it a weight that is not finite."""
        if self._doc_ids is None:
            raise RuntimeError("Sparse.search needs index or load first")
        if k < 0:
            raise BadInput(f"k is {k}: give the number of documents to return, at least 0.")
        width = min(k, len(self._doc_ids))
        docs, scores = np.full((len(queries), width), -1, np.int32), np.zeros((len(queries), width))
        if docs.size:
            asked, text_of = _numbered([query.text for query in queries])
            for part in self._encode(asked, np.zeros(len(asked), bool), lambda row: f"the query {asked[row][:60]!r}"):
                ends = np.cumsum(part.lengths)
                for text, start, end in zip(part.rows, ends - part.lengths, ends, strict=True):
                    found, values = self._postings.best(part.tokens[start:end], part.weights[start:end], width)
                    rows = text_of == text
                    docs[rows, : len(found)], scores[rows, : len(found)] = found, values
        return self._doc_ids.ranking(queries, docs, scores)

    def _identity(self) -> dict[str, Any]:
        return {"version": self.version, **self._transformer.identify()}

    def _build(self, documents: Sequence[Document], folder: Path) -> None:
        texts, text_of = _numbered([document.indexed_text for document in documents])
        blocks = Blocks(folder)
        done = np.zeros(len(texts), bool)
        done[blocks.read().rows] = True

        def name(row: int) -> str:
            return f"document {documents[int(np.argmax(text_of == row))].doc_id!r}"

        try:
            for part in self._encode(texts, done, name):
                blocks.add(part)
        finally:
            blocks.keep()
        Postings.of(blocks.read(), text_of).save(folder)

    def _encode(self, texts: Sequence[str], done: np.ndarray, name: Callable[[int], str]) -> Iterator[Weights]:
        """Weights of the texts that are not done (bool [N]), batch by batch."""
        import torch

        done = done.copy()
        for batch in self._transformer.batches(texts, done.copy()):
            with models.computing():
                weights = torch.relu(self._transformer.head(batch.states)).squeeze(-1).cpu().numpy()
            ids, mask = batch.ids.cpu().numpy(), batch.mask.cpu().numpy()
            bad = (~np.isfinite(weights) & mask).any(axis=1)
            if bad.any():
                raise models.not_finite(name(int(batch.rows[bad][0])))
            counts = mask & (weights > 0) & ~np.isin(ids, self._transformer.special)
            yield greatest(batch.rows, ids, weights, counts)
            done[batch.rows] = True
            if self.progress:
                self.progress(int(done.sum()), len(texts), "texts")


class MultiVector:
    """Late interaction (Khattab & Zaharia 2020, ColBERT): each token of the query looks for its like in the document.

    A pair scores 1 / |q| * sum over i of max over j of q_i . d_j, from -1 to 1, with a unit vector for each token but
    cls: W h + b, h being the transformer's last state there. The paper's formula counts all tokens; that cls is left
    out, and eos is not, is how the released model was trained. Scores compare across queries.

    depth: documents of a query that are scored, at least 1. The other arguments as in Sparse.
    """

    recorded_as = "rerank/bge_m3_multi_vector"
    version = 1
    packages = ("transformers",)

    def __init__(
        self,
        model: str | None,
        revision: str | None = None,
        path: str | None = None,
        depth: int = 20,
        max_length: int = 8192,
        dtype: Dtype = "auto",
        device: str | None = None,
        batch_tokens: int | None = None,
    ) -> None:
        models.check_depth(depth)
        self.depth = depth
        self._transformer = _Transformer(
            "colbert_linear.pt", model, revision, path, max_length, dtype, device, batch_tokens
        )

    @classmethod
    def identify(cls, **arguments: Any) -> dict[str, Any]:
        """What decides a pair's score: the model's files, the number format and max_length, but not depth."""
        return models.identify(**arguments)

    def score(
        self, pairs: Sequence[tuple[str, str]], progress: Progress | None = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (places in `pairs` int64 [n], scores float64 [n]), document by document, the longest first.

        Every query is encoded once, and every document once unless the queries are so many that their vectors do not
        fit together. BadInput where the model gives a score that is not finite.
        """
        done = 0
        for places in _query_groups(pairs):
            asked, query_of = _numbered([pairs[place][0] for place in places.tolist()])
            told, document_of = _numbered([pairs[place][1] for place in places.tolist()])
            queries = dict(self._vectors(asked))
            by_document = np.split(np.argsort(document_of, kind="stable"), np.cumsum(np.bincount(document_of))[:-1])
            for document, vectors in self._vectors(told):
                here = by_document[document]
                scores = _late_interaction([queries[number] for number in query_of[here].tolist()], vectors)
                bad = here[~np.isfinite(scores)]
                if len(bad):
                    raise models.not_finite(models.pair(*pairs[places[bad[0]]]))
                yield places[here], scores
                done += len(here)
                if progress:
                    progress(done, len(pairs), "pairs")

    def _vectors(self, texts: Sequence[str]) -> Iterator[tuple[int, torch.Tensor]]:
        """(row, unit vectors float32 [tokens without cls, D]) of each text."""
        import torch

        for batch in self._transformer.batches(texts):
            with models.computing():
                vectors = torch.nn.functional.normalize(self._transformer.head(batch.states[:, 1:]), dim=-1)
            for row, one, mask in zip(batch.rows.tolist(), vectors, batch.mask[:, 1:], strict=True):
                yield row, one[mask]


def _late_interaction(queries: Sequence[torch.Tensor], document: torch.Tensor) -> np.ndarray:
    """float64 [n]: the scores of n queries (each [Tq, D]) with a document ([Td, D])."""
    import torch

    with models.computing():
        best = (torch.cat(list(queries)) @ document.T).amax(dim=1).double()
        return torch.stack([part.mean() for part in best.split([len(query) for query in queries])]).cpu().numpy()


def _query_groups(pairs: Sequence[tuple[str, str]]) -> Iterator[np.ndarray]:
    """Places of the pairs (int64 [n]) by query, in groups of queries whose vectors fit into memory together."""
    queries, query_of = _numbered([query for query, _ in pairs])
    group = np.cumsum([len(query) + 2 for query in queries], dtype=np.int64) // QUERY_CHARACTERS
    for number in np.unique(group):
        yield np.flatnonzero(group[query_of] == number)


def _numbered(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """The different texts by first use, and int64 [N]: which of these each text is."""
    numbers: dict[str, int] = {}
    number_of = np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)
    return list(numbers), number_of
