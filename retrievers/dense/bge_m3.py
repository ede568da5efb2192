"""The sparse and the multi-vector head of bge-m3 (Chen et al. 2024, BGE M3-Embedding, arXiv:2402.03216).

The model's folder has a transformer, sparse_linear.pt and colbert_linear.pt. For the dense head, use SentenceEncoder.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from harness.errors import BadInput
from retrievers.base import DocIds, Document, Progress, Query, Ranking, encodable, load_array, opened, require_identity
from retrievers.dense import models
from retrievers.dense.embeddings import Blocks, write_whole

if TYPE_CHECKING:
    import torch


QUERY_CHARACTERS = 1 << 18  # limit for a group of queries; 1,024 numbers for each character take about 1 GB


class Weights(NamedTuple):
    """Token weights of n texts, text after text. Each text's token ids are ascending.

    rows, lengths: int64 [n], each text's index in the list of texts, and its number of tokens.
    tokens: token ids, int32 [T], where T is the sum of `lengths`. weights: float32 [T], above 0.
    """

    rows: np.ndarray
    lengths: np.ndarray
    tokens: np.ndarray
    weights: np.ndarray

    @classmethod
    def joined(cls, parts: Iterable[Weights]) -> Weights:
        empty = cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.float32))
        return cls(*(np.concatenate(columns) for columns in zip(empty, *parts, strict=True)))


def greatest(rows: np.ndarray, ids: np.ndarray, weights: np.ndarray, counts: np.ndarray) -> Weights:
    """Return each token's greatest weight in each of n texts.

    rows: int64 [n], as in Weights. ids, weights: the texts' token ids and their weights, [n, L].
    counts: bool [n, L], whether to use a token.
    """
    where, column = np.nonzero(counts)
    tokens, values = ids[where, column], weights[where, column]
    order = np.lexsort((-values, tokens, where))
    where, tokens, values = where[order], tokens[order], values[order]
    new = np.ones(len(where), bool)
    new[1:] = (where[1:] != where[:-1]) | (tokens[1:] != tokens[:-1])
    lengths = np.bincount(where[new], minlength=len(rows))
    return Weights(rows, lengths, tokens[new].astype(np.int32), values[new].astype(np.float32))


class Postings(NamedTuple):
    """An inverted index: token t has weight data[i] in document indices[i], for indptr[t] <= i < indptr[t + 1].

    indptr: int64 [V + 1]. indices: int32 [T], ascending for each token. data: float32 [T].
    """

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray

    @classmethod
    def of(cls, weights: Weights, text_of: np.ndarray) -> Postings:
        """Index N documents. text_of: int64 [N], the index of each document's text in the list of texts."""
        from scipy.sparse import csr_array

        starts = np.concatenate([[0], np.cumsum(weights.lengths)])
        size = int(weights.tokens.max(initial=-1)) + 1
        texts = csr_array((weights.weights, weights.tokens, starts), shape=(len(weights.rows), size))
        place = np.unique(weights.rows, return_index=True)[1]  # if a text was encoded twice, its first weights count
        matrix = texts[place[text_of]].T.tocsr()
        matrix.sort_indices()
        return cls(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data)

    @classmethod
    def load(cls, folder: Path) -> Postings:
        return cls(*(load_array(folder, name) for name in cls._fields))

    def save(self, folder: Path) -> None:
        for name, values in self._asdict().items():
            write_whole(folder / f"{name}.npy", partial(np.save, arr=values, allow_pickle=False))

    def best(self, tokens: np.ndarray, weights: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return (docs int32, scores float64) of a query's k best documents with a score above 0."""
        known = tokens < len(self.indptr) - 1  # the token ids of all documents are below this bound
        spans = [slice(self.indptr[token], self.indptr[token + 1]) for token in tokens[known].tolist()]
        parts = [
            self.data[span] * weight for span, weight in zip(spans, weights[known].astype(np.float64), strict=True)
        ]
        docs = np.concatenate([np.empty(0, np.int32), *(self.indices[span] for span in spans)])
        scores = np.bincount(docs, np.concatenate([np.empty(0), *parts]))
        found = np.flatnonzero(scores > 0)
        if len(found) > k:  # keep all documents that reach the k-th best score, ties included
            found = found[scores[found] >= np.partition(scores[found], -k)[-k]]
        order = np.argsort(-scores[found], kind="stable")[:k]  # a stable sort keeps ties in ascending order
        return found[order], scores[found[order]]


class _Batch(NamedTuple):
    """rows: int64 [n]. ids: token ids [n, L]. mask: bool [n, L], false for padding. states: last layer [n, L, H]."""

    rows: np.ndarray
    ids: torch.Tensor
    mask: torch.Tensor
    states: torch.Tensor


@dataclass(eq=False)
class _Head(models.NeuralModel):
    max_length: models.MaxLength = 8192

    packages = ("transformers",)
    head_file = ""  # name of the head's file in the model's folder

    def __post_init__(self) -> None:
        super().__post_init__()
        self._transformer = _Transformer(self)


class _Transformer:
    def __init__(self, settings: _Head) -> None:
        self._settings, self.max_length = settings, settings.max_length

    @cached_property
    def folder(self) -> Path:
        return models.locate_model(self._settings)

    @cached_property
    def tokenizer(self) -> Any:
        with models.loading(self.folder, "transformers"):
            from transformers import AutoTokenizer

            return AutoTokenizer.from_pretrained(self.folder, local_files_only=True, padding_side="right")

    @cached_property
    def special(self) -> list[int]:
        ids = (getattr(self.tokenizer, f"{name}_token_id") for name in ("cls", "eos", "pad", "unk"))
        return [token for token in ids if token is not None]

    @cached_property
    def model(self) -> Any:
        with models.loading(self.folder, "transformers"):
            import torch
            from transformers import AutoModel

            from retrievers.dense.quick_linear import quicken

            precision = getattr(torch, models.dtype_for(self._settings.dtype, self._settings.device))
            model = AutoModel.from_pretrained(self.folder, dtype=precision, local_files_only=True)
        models.check_length(self.max_length, min(models.positions(model), self.tokenizer.model_max_length))
        model = model.eval().to(models.device_for(self._settings.device))
        quicken(model)
        return model

    @cached_property
    def head(self) -> torch.nn.Linear:
        import torch

        file = self.folder / self._settings.head_file
        if not file.is_file():
            raise BadInput(
                f"{file} is missing. BAAI/bge-m3 and models trained from it with FlagEmbedding have this file; other "
                "models have only a dense head: use retriever=dense."
            )
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
            outputs, inputs = state["weight"].shape
            layer = torch.nn.Linear(inputs, outputs)
            layer.load_state_dict(state)
        except Exception:  # a damaged or hostile file; torch's message would say how to load it anyway
            raise BadInput(
                f"{file} does not hold the weights of one linear layer: it is damaged, or not the right file. Fetch "
                "the model again."
            ) from None
        if inputs != self.model.config.hidden_size:
            raise BadInput(
                f"{file} takes {inputs} numbers, but the model gives {self.model.config.hidden_size}: the file belongs "
                "to another model. Fetch the model again."
            )
        return layer.float().to(self.model.device)

    def batches(self, texts: Sequence[str], done: np.ndarray | None = None) -> Iterator[_Batch]:
        """Yield the states of N texts, batch by batch. done: as in `models.batches_by_length`."""
        tokens: dict[int, list[int]] = {}  # row -> token ids, for the texts of the current chunk

        def count_tokens(rows: np.ndarray) -> np.ndarray:
            chunk = [encodable(texts[row]) for row in rows.tolist()]
            ids = self.tokenizer(chunk, truncation=True, max_length=self.max_length)["input_ids"]
            tokens.clear()
            tokens.update(zip(rows.tolist(), ids, strict=True))
            return np.array([len(one) for one in ids])

        limit = self._settings.batch_limit()
        for rows in models.batches_by_length([len(text) for text in texts], count_tokens, limit, done):
            ids = {"input_ids": [tokens[row] for row in rows.tolist()]}
            padded = self.tokenizer.pad(ids, return_tensors="pt").to(self.model.device)
            with models.computing():
                states = self.model(**padded).last_hidden_state.float()
            yield _Batch(rows, padded["input_ids"], padded["attention_mask"].bool(), states)


@dataclass(eq=False)
class Sparse(_Head):
    """Learned sparse retrieval by weights of tokens.

    A token weighs relu(w . h + b), where h is the transformer's last state at that token; w and b make up the head. A
    token that occurs several times in a text has its greatest weight; cls, eos, pad and unk weigh nothing. A document's
    score is the sum, over all tokens that it shares with the query, of the product of the token's two weights.
    Documents that share no token with the query are never returned. Longer queries reach higher scores, so scores are
    only roughly comparable across queries.
    """

    progress: Progress | None = field(default=None, init=False, repr=False)  # called while texts are encoded

    recorded_as = "retriever/bge_m3_sparse"
    resumes = True
    sharding = "independent"
    head_file = "sparse_linear.pt"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._doc_ids: DocIds | None = None
        self._asked: list[tuple[list[str], Weights]] = []  # the last queries and their token weights

    def sibling(self) -> Sparse:
        return copy.copy(self)

    def index(self, documents: Sequence[Document], folder: Path) -> None:
        if not (folder / "sparse.json").exists():
            DocIds.save(folder, documents)
            self._build(documents, folder)
            identity = json.dumps(self._identity()).encode()
            write_whole(folder / "sparse.json", lambda file: file.write(identity))
        Blocks(folder).remove()  # no longer needed: the index is complete
        self.load(folder)

    def load(self, folder: Path) -> None:
        require_identity(folder / "sparse.json", self._identity())
        self._postings = Postings.load(folder)
        self._doc_ids = DocIds(folder)

    def search(self, queries: Sequence[Query], k: int) -> Ranking:
        doc_ids = opened(self._doc_ids, k)
        width = min(k, len(doc_ids))
        texts, text_of = _numbered([query.text for query in queries])
        docs, scores = np.full((len(texts), width), -1, np.int32), np.zeros((len(texts), width))
        weights = self._weights(texts if width else [])
        ends = np.cumsum(weights.lengths)
        for row, start, end in zip(weights.rows, ends - weights.lengths, ends, strict=True):
            best, values = self._postings.best(weights.tokens[start:end], weights.weights[start:end], width)
            docs[row, : len(best)], scores[row, : len(best)] = best, values
        return doc_ids.ranking(queries, docs[text_of], scores[text_of])

    def _weights(self, texts: list[str]) -> Weights:
        if not self._asked or self._asked[0][0] != texts:
            batches = self._encode(texts, np.zeros(len(texts), bool), lambda row: f"the query {texts[row][:60]!r}")
            self._asked[:] = [(texts, Weights.joined(batches))]
        return self._asked[0][1]

    def _identity(self) -> dict[str, Any]:
        return {"version": self.version, **self.identity()}

    def _build(self, documents: Sequence[Document], folder: Path) -> None:
        texts, text_of = _numbered([document.indexed_text for document in documents])
        blocks = Blocks(folder)
        done = np.zeros(len(texts), bool)
        for part in blocks.read():
            done[part["rows"]] = True

        def name(row: int) -> str:
            return f"document {documents[int(np.argmax(text_of == row))].doc_id!r}"

        with blocks:
            for batch in self._encode(texts, done, name):
                blocks.add(**batch._asdict())
        Postings.of(Weights.joined(Weights(**part) for part in blocks.read()), text_of).save(folder)

    def _encode(self, texts: Sequence[str], done: np.ndarray, name: Callable[[int], str]) -> Iterator[Weights]:
        import torch

        encoded = done.copy()
        for batch in self._transformer.batches(texts, done):
            with models.computing():
                weights = torch.relu(self._transformer.head(batch.states)).squeeze(-1).cpu().numpy()
            ids, mask = batch.ids.cpu().numpy(), batch.mask.cpu().numpy()
            bad = (~np.isfinite(weights) & mask).any(axis=1)
            if bad.any():
                raise models.not_finite(name(int(batch.rows[bad][0])))
            counts = mask & (weights > 0) & ~np.isin(ids, self._transformer.special)
            yield greatest(batch.rows, ids, weights, counts)
            encoded[batch.rows] = True
            if self.progress:
                self.progress(int(encoded.sum()), len(texts), "texts")


@dataclass(eq=False)
class MultiVector(_Head):
    """Late interaction (Khattab & Zaharia 2020, ColBERT) of each query token with the most similar document token.

    A pair's score is 1 / |q| * sum over i of max over j of q_i . d_j, from -1 to 1, comparable across queries. The
    vectors q_i are the query's, and the vectors d_j the document's. |q| is the number of q_i. Each token except cls has
    the vector W h + b, scaled to length 1, where h is the transformer's last state at that token, and W and b make up
    the head. The bge-m3 paper's formula uses all tokens, but the released model was trained without cls and with eos.

    depth: number of documents to score per query, at least 1.
    """

    depth: models.RerankDepth = 20

    recorded_as = "rerank/bge_m3_multi_vector"
    head_file = "colbert_linear.pt"

    def __post_init__(self) -> None:
        super().__post_init__()
        models.check_depth(self.depth)

    def score(self, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for places in _query_groups(pairs):
            queries, query_of = _numbered([pairs[place][0] for place in places.tolist()])
            documents, document_of = _numbered([pairs[place][1] for place in places.tolist()])
            query_vectors = dict(self._vectors(queries))
            by_document = np.split(np.argsort(document_of, kind="stable"), np.cumsum(np.bincount(document_of))[:-1])
            for document, vectors in self._vectors(documents):
                here = by_document[document]
                scores = _late_interaction([query_vectors[number] for number in query_of[here].tolist()], vectors)
                models.check_scores([pairs[place] for place in places[here]], scores)
                yield places[here], scores

    def _vectors(self, texts: Sequence[str]) -> Iterator[tuple[int, torch.Tensor]]:
        import torch

        for batch in self._transformer.batches(texts):
            with models.computing():
                vectors = torch.nn.functional.normalize(self._transformer.head(batch.states[:, 1:]), dim=-1)
            for row, one, mask in zip(batch.rows.tolist(), vectors, batch.mask[:, 1:], strict=True):
                yield row, one[mask]


def _late_interaction(queries: Sequence[torch.Tensor], document: torch.Tensor) -> np.ndarray:
    """Return the scores of n queries (each [Tq, D]) with a document ([Td, D]), float64 [n]."""
    import torch

    with models.computing():
        best = (torch.cat(list(queries)) @ document.T).amax(dim=1).double()
        return torch.stack([part.mean() for part in best.split([len(query) for query in queries])]).cpu().numpy()


def _query_groups(pairs: Sequence[tuple[str, str]]) -> Iterator[np.ndarray]:
    queries, query_of = _numbered([query for query, _ in pairs])
    group = np.cumsum([len(query) + 2 for query in queries], dtype=np.int64) // QUERY_CHARACTERS
    for number in np.unique(group):
        yield np.flatnonzero(group[query_of] == number)


def _numbered(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Return the distinct texts in the order of first use, and each text's index in this list, int64 [N]."""
    numbers: dict[str, int] = {}
    number_of = np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)
    return list(numbers), number_of
