"""The task of answering in words: files of answers, how two schemes compare them, and the measures of the sums."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from harness.config.components import build
from harness.data.files import check_pairs, field, identifier, json_objects, no_rows, optional_text, required, some
from harness.pipeline.cache import Cache
from harness.pipeline.cached_parts import CachedTokenizer
from harness.progress import watch
from harness.tasks.model_measures import ModelAbsent
from harness.tasks.task import JudgedItems
from harness.tasks.text_measures import accuracy, alternatives, exact_match, nfc, rouge_1, split_reason
from retrievers.base import BadInput, did_you_mean

TEXT = ("rouge_1", "bertscore", "bleurt")
TOKENIZERS: dict[str, dict[str, Any]] = {  # of ROUGE-1, as parts
    "kiwi": {"_target_": "retrievers.lexical.tokenize.Kiwi", "tags": ["*"]},
    "whitespace": {"_target_": "retrievers.lexical.tokenize.Whitespace"},
}
AVERAGES = ("descriptive_avg", "final_score")
TYPES = {"선다형": "multiple_choice", "단답형": "short_answer", "서술형": "descriptive"}  # question type -> part
KINDS = {part: kind for kind, part in TYPES.items()}

Compared = dict[str, tuple[str, str]]  # part -> what is compared there: of the prediction, of the reference


class TextScorer(Protocol):
    """A model that scores pairs of texts; raises ModelAbsent where it is not to be had."""

    def score(self, predictions: Sequence[str], references: Sequence[str], cache: Cache) -> np.ndarray: ...


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference as its file has it, in composed form. kind: the type of the question, "" where it has none."""

    where: str
    kind: str
    question: str
    answer: str


@dataclass(frozen=True)
class Scheme:
    """How answers are compared: in parts, each over the items that have it.

    measures: part -> what is measured there. A part names the tally that counts its items.
    compare: (reference, predicted answer) -> the parts of an item.
    left_out: whether a part that no item has is left out of the final score, its measures NaN; else they are 0.
    """

    measures: Mapping[str, tuple[str, ...]]
    compare: Callable[[Reference, str], Compared]
    left_out: bool


def _answer_and_reason(reference: Reference, prediction: str) -> Compared:
    (our_answer, our_reason), (answer, reason) = split_reason(prediction), split_reason(reference.answer)
    compared = {"items": (our_answer, answer)}
    if reason:
        compared["explained" if our_reason else "unexplained"] = (our_reason, reason)
    return compared


def _by_type(reference: Reference, prediction: str) -> Compared:
    if reference.kind not in TYPES:
        raise BadInput(
            f"{reference.where}: input.question_type is {reference.kind!r:.60}, but task.scheme=culture_qa knows "
            f"{', '.join(TYPES)}.{did_you_mean(reference.kind, TYPES)}"
        )
    return {TYPES[reference.kind]: (prediction, reference.answer)}


SCHEMES = {
    "rag_qa": Scheme(
        {"items": ("exact_match",), "explained": TEXT, "unexplained": ()}, compare=_answer_and_reason, left_out=False
    ),
    "culture_qa": Scheme(
        {"multiple_choice": ("accuracy",), "short_answer": ("exact_match",), "descriptive": TEXT},
        compare=_by_type,
        left_out=True,
    ),
}


class Answers:
    """Free-text answers, as in the Korean language contest of 2025 (AI 말평).

    scheme: rag_qa: each answer is `... 가/이 옳다` and a reason: `exact_match` of the answers over all items, the text
    measures (`rouge_1`, `bertscore`, `bleurt`) of the reasons over the items where both sides give one. culture_qa: by
    the type of the question: 선다형 `accuracy`, 단답형 `exact_match`, 서술형 the text measures of whole answers.
    Only `exact_match` knows alternatives (`#`): reasons and 서술형 answers are compared whole.
    tokenizer: of ROUGE-1: all of kiwi's morphemes, or what stands between white space.
    bertscore, bleurt: the models, None for none; where a model is not to be had, its measure is absent, and so are
    the averages that need it.
    """

    recorded_as = "task/answers"
    name = "answers"
    version = 1
    packages = ("kiwipiepy", "kiwipiepy_model")

    def __init__(
        self,
        scheme: Literal["rag_qa", "culture_qa"] = "rag_qa",
        tokenizer: Literal["kiwi", "whitespace"] = "kiwi",
        bertscore: TextScorer | None = None,
        bleurt: TextScorer | None = None,
    ) -> None:
        _check_choice("scheme", scheme, SCHEMES)
        _check_choice("tokenizer", tokenizer, TOKENIZERS)
        self._models = {"bertscore": bertscore, "bleurt": bleurt}
        for key, model in self._models.items():
            if model is not None and not hasattr(model, "score"):
                raise BadInput(f"{key} is {model!r:.60}: give a part, with a `_target_`, or null.")
        self._plain: dict[str, Callable[[Sequence[str], Sequence[str]], np.ndarray]] = {
            "accuracy": accuracy,
            "exact_match": exact_match,
        }
        self._tokenizer = TOKENIZERS[tokenizer]
        self._scheme = SCHEMES[scheme]
        self.measures = (*(name for names in self._scheme.measures.values() for name in names), *AVERAGES)
        self.counts = tuple(self._scheme.measures)
        self.subset = {name: part for part, names in self._scheme.measures.items() for name in names}

    def judge(self, predictions: Path, references: Path, wanted: Sequence[str], cache: Cache) -> JudgedItems:
        """As `TextTask.judge`. tallies: for each part how many items have it, for each measure its sum over them."""
        asked, answered = read_references(references), read_predictions(predictions)
        check_pairs(predictions, answered, references, asked)
        texts = [answered[item_id] for item_id in asked]
        compared = [self._scheme.compare(one, text) for one, text in zip(asked.values(), texts, strict=True)]
        kinds = tuple(one.kind or "answer" for one in asked.values())
        table: dict[str, list[Any]] = {
            "id": list(asked),
            "kind": list(kinds),
            "question": [one.question for one in asked.values()],
            "reference": [one.answer for one in asked.values()],
            "prediction": texts,
        }
        tallies, absent = self._tally(compared, self._needed(wanted), cache)
        for part, names in self._scheme.measures.items():
            for name in [name for name in names if name in tallies]:
                values = zip(tallies[name].tolist(), tallies[part].tolist(), strict=True)
                table[name] = [value if there else None for value, there in values]
        absent |= {name: why for name, why in self._absent_averages(tallies, absent).items() if name in wanted}
        empty = texts.count("")
        notes = (f"{empty} of {len(texts)} predictions are empty.",) if empty else ()
        return JudgedItems(tuple(asked), kinds, tallies, table, absent=absent, notes=notes)

    def measure(self, sums: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Every measure from sums of tallies [...], in [0, 1] but for `bleurt`, which may leave it a little.

        accuracy, exact_match, rouge_1, bertscore, bleurt: sum / items of the part. Without items: 0 under rag_qa, NaN
        under culture_qa. descriptive_avg = (rouge_1 + bertscore + bleurt) / 3. final_score: the mean of the parts:
        (exact_match + descriptive_avg) / 2 under rag_qa, under culture_qa the mean of accuracy, exact_match and
        descriptive_avg, those without items left out. NaN where a sum that it needs is missing.
        Source: the contest's code and its published table. Example: exact_match .3454, rouge_1 .2603,
        bertscore .7036, bleurt .5313 -> descriptive_avg .4984, final_score .4219.
        """
        found: dict[str, np.ndarray] = {}
        means, present = [], []
        for part, names in self._scheme.measures.items():
            if names:
                found |= {name: self._mean(sums, name, part) for name in names}
                means.append(np.mean([found[name] for name in names], axis=0))
                left_out = self._scheme.left_out and all(name in sums for name in names)
                present.append((np.asarray(sums[part]) > 0) | (not left_out))
        found["descriptive_avg"] = np.mean([found[name] for name in TEXT], axis=0)
        parts = np.sum(present, axis=0)
        total = np.where(present, means, 0).sum(axis=0)
        found["final_score"] = np.divide(total, parts, out=np.full(parts.shape, np.nan), where=parts > 0)
        return found

    def _mean(self, sums: Mapping[str, np.ndarray], name: str, part: str) -> np.ndarray:
        """Sum / items of the part, what the scheme says without items, NaN where the measure is not tallied."""
        n = np.asarray(sums[part], np.float64)
        if name not in sums:
            return np.full(n.shape, np.nan)
        return np.divide(sums[name], n, out=np.full(n.shape, np.nan if self._scheme.left_out else 0.0), where=n > 0)

    def _needed(self, wanted: Collection[str]) -> set[str]:
        """The measures to compute for those that are wanted, averages not among them."""
        plain = set(self.measures) - set(AVERAGES)
        if "final_score" in wanted:
            return plain
        return plain & {*wanted, *(TEXT if "descriptive_avg" in wanted else ())}

    def _tally(
        self, compared: Sequence[Compared], needed: Collection[str], cache: Cache
    ) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        """The tallies, and why needed measures are absent: those that lack a model are not tallied."""
        tallies, absent = {}, {}
        for part, names in self._scheme.measures.items():
            here = np.array([part in one for one in compared])
            tallies[part] = here.astype(np.float64)
            ours, theirs = ([one[part][side] for one in compared if part in one] for side in (0, 1))
            for name in [name for name in names if name in needed]:
                tally = np.zeros(len(compared))
                if self._scheme.left_out and not ours:
                    absent[name] = f"no question is of the type {KINDS[part]}"
                else:
                    try:
                        tally[here] = self._score(name, ours, theirs, cache)
                    except ModelAbsent as error:
                        absent[name] = str(error)
                        continue
                tallies[name] = tally
        return tallies, absent

    def _score(self, name: str, ours: Sequence[str], theirs: Sequence[str], cache: Cache) -> np.ndarray:
        """float64 [n]; a model is not asked about an empty prediction, which scores 0."""
        if name in self._plain:
            return self._plain[name](ours, theirs)
        if name == "rouge_1":  # references are tokenised once for all that is held against them
            with watch(name) as progress:
                part = self._tokenizer
                return rouge_1(ours, theirs, CachedTokenizer(cache, part, lambda: build(part), progress))
        model = self._models[name]
        if model is None:
            raise ModelAbsent(f"task.{name} is null: no model is named")
        there = [i for i, text in enumerate(ours) if text]
        values = np.zeros(len(ours))
        if there:
            values[there] = model.score([ours[i] for i in there], [theirs[i] for i in there], cache)
        return values

    def _absent_averages(self, tallies: Mapping[str, np.ndarray], absent: Mapping[str, str]) -> dict[str, str]:
        """Averages that lack a model, and `descriptive_avg` where no answer is to be compared as a text."""
        counted = [part for part in self.counts if tallies[part].any() or not self._scheme.left_out]
        lacking = [name for part in counted for name in self._scheme.measures[part] if name in absent]
        if lacking:
            return dict.fromkeys(AVERAGES, f"needs {', '.join(lacking)}")
        return {"descriptive_avg": absent["rouge_1"]} if "rouge_1" in absent else {}


def read_references(path: Path) -> dict[str, Reference]:
    """id -> reference, from a JSON array or JSON lines {id, input: {question_type, question}, output: {answer}}.

    `input` and what it holds may be missing. Ids and texts are in composed form.
    """
    return {item_id: _reference(row, where) for item_id, where, row in _rows(path)}


def read_predictions(path: Path) -> dict[str, str]:
    """id -> answer, which may be empty, from the same layout; nothing but `id` and `output.answer` is read."""
    return {item_id: _answer(row, where) for item_id, where, row in _rows(path)}


def _rows(path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(id, place in the file, object) of every item; at least one, the ids unique."""
    rows = [(nfc(identifier(row, "id", where)[0]), where, row) for where, row in json_objects(path)]
    if not rows:
        raise no_rows(path)
    places: dict[str, list[str]] = {}
    for item_id, where, _ in rows:
        places.setdefault(item_id, []).append(where)
    repeated = {item_id: found for item_id, found in places.items() if len(found) > 1}
    if repeated:
        first, second, *_ = next(iter(repeated.values()))
        raise BadInput(
            f"{path}: ids that stand more than once: {some(repeated)} ({len(repeated)}), the first at {first} and "
            f"{second}. Keep one item of each."
        )
    yield from rows


def _reference(row: Mapping[str, Any], where: str) -> Reference:
    answer = _answer(row, where)
    if not alternatives(answer):
        raise BadInput(f"{where}: output.answer is {answer!r:.60}: a reference must hold an answer.")
    asked = field(row, "input", dict, where) if "input" in row else {}
    kind, question = (nfc(optional_text(asked, key, where)) for key in ("question_type", "question"))
    return Reference(where, kind.strip(), question, answer)


def _answer(row: Mapping[str, Any], where: str) -> str:
    """The text of output.answer; a whole number, such as that of a choice, is taken as text."""
    answer = required(field(row, "output", dict, where), "answer", where)
    if isinstance(answer, int) and not isinstance(answer, bool):
        return str(answer)
    if not isinstance(answer, str):
        raise BadInput(f"{where}: output.answer is {answer!r:.60}, but must be text or a whole number.")
    return nfc(answer).strip()


def _check_choice(key: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise BadInput(f"{key} is {value!r}: give {' or '.join(known)}.{did_you_mean(str(value), known)}")
