"""The task `answers`: free-text answers, compared by one of two schemes. Higher is better for all measures.

Texts are compared in Unicode's composed form (NFC). The definitions come from the Korean language contest of 2025 (AI
말평, tasks on language norms and on culture), except where a docstring names a difference.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from harness.config.components import build
from harness.data.files import check_pairs, field, identifier, json_objects, no_rows, optional_text, required
from harness.errors import BadInput, did_you_mean
from harness.experiment.cached_parts import CachedTokenizer
from harness.progress import watch
from harness.storage.cache import Cache
from harness.tasks.model_measures import ModelAbsent, PairMeasure
from harness.tasks.task import JudgedItems, Marked, nfc
from retrievers.lexical.tokenize import Tokens

Tokenize = Callable[[Sequence[str]], Tokens]

ENDINGS = ("가 옳다", "이 옳다")  # "... is right", the ending of an answer; the first has precedence
ALTERNATIVES = "#"  # separates several acceptable answers
WORD_LIMIT = 1000  # ROUGE-1 reads this many words of a text

_QUOTES = str.maketrans("", "", "\"'")
_NOT_READ = re.compile("[^a-z0-9가-힣]")


def split_reason(text: str) -> tuple[str, str]:
    """Split a text into answer and reason: `'않은'이 옳다. 형용사이다.` -> (`'않은'이 옳다`, `형용사이다.`).

    The answer ends with the first `가 옳다` or, if there is none, with the first `이 옳다`. The reason is the rest
    without leading dots, commas and white space. Without either ending, the whole text is the answer and the reason is
    empty. A `#` right after the ending begins another acceptable answer, which is split in turn; the contest's code
    counts this answer as part of the reason. Any other `#` belongs to the reason.
    """
    answers, rest = [], nfc(text)
    while ending := next((ending for ending in ENDINGS if ending in rest), None):
        answer, _, rest = rest.partition(ending)
        answers.append((answer + ending).strip())
        rest = rest.strip()
        if not rest.startswith(ALTERNATIVES):
            return ALTERNATIVES.join(answers), rest.lstrip(".," + string.whitespace)
        rest = rest.removeprefix(ALTERNATIVES)
    return ALTERNATIVES.join([*answers, rest.strip()]), ""


def alternatives(reference: str) -> set[str]:
    """Return the acceptable non-empty answers of a reference, without ASCII quotes and outer white space."""
    return {one.strip() for one in nfc(reference).translate(_QUOTES).split(ALTERNATIVES)} - {""}


def accuracy(predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Return 1 where prediction and reference are equal except for outer white space, else 0: float64 [N].

    For multiple-choice questions. Source: the contest's `accuracy`, which compares white space too. Example: `3` for
    `3` -> 1, `③` for `3` -> 0.
    """
    pairs = zip(predictions, references, strict=True)
    return np.array([nfc(prediction).strip() == nfc(reference).strip() for prediction, reference in pairs], np.float64)


def exact_match(predictions: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """Return 1 where the prediction equals one of the alternatives of its reference, else 0: float64 [N].

    Only ASCII quotes and outer white space are ignored, in both texts. A prediction is a single answer, so a `#` is a
    part of it. Source: the contest's `exact_match`, which removes quotes only in its task on language norms.
    Example: `창덕궁` for `경복궁#창덕궁` -> 1, `경복궁#창덕궁` for the same reference -> 0.
    """
    pairs = zip(predictions, references, strict=True)
    right = [nfc(prediction).translate(_QUOTES).strip() in alternatives(reference) for prediction, reference in pairs]
    return np.array(right, np.float64)


def rouge_1(predictions: Sequence[str], references: Sequence[str], tokenize: Tokenize) -> np.ndarray:
    """Return ROUGE-1 F1, 2 * common / (terms of the prediction + terms of the reference), float64 [N].

    A term with the counts a and b in the two texts adds min(a, b) to `common`. To get terms, take the first 1,000 words
    of a text (by white space) in lower case, replace each character other than a to z, digits and Hangul syllables by a
    space, and tokenize the result. The value is 0 where either text has no term.
    Source: Lin 2004, ROUGE: A Package for Automatic Evaluation of Summaries (alpha 0.5). The contest's code uses
    MeCab's morphemes; another tokenizer gives other numbers.
    Example, with terms split at white space: `물은 끓는다` for `물은 100도에서 끓는다` -> 2 * 2 / (2 + 3) = 0.8.
    """
    both = [tokenize([_read(text) for text in side]).lists() for side in (predictions, references)]
    pairs = [(Counter(ours), Counter(theirs)) for ours, theirs in zip(*both, strict=True)]
    common = np.array([(ours & theirs).total() for ours, theirs in pairs], np.float64)
    terms = np.array([ours.total() + theirs.total() for ours, theirs in pairs], np.float64)
    return np.divide(2 * common, terms, out=np.zeros(len(pairs)), where=terms > 0)


def _read(text: str) -> str:
    return _NOT_READ.sub(" ", " ".join(nfc(text).split()[:WORD_LIMIT]).lower())


TEXT = ("rouge_1", "bertscore", "bleurt")
TOKENIZERS: dict[str, dict[str, Any]] = {  # components that split texts into the terms of ROUGE-1
    "kiwi": {"_target_": "retrievers.lexical.tokenize.Kiwi", "tags": ["*"]},
    "whitespace": {"_target_": "retrievers.lexical.tokenize.Whitespace"},
}
AVERAGES = ("descriptive_avg", "final_score")
UNBOUNDED = ("bleurt",)  # measures that may exceed 1
TYPES = {"선다형": "multiple_choice", "단답형": "short_answer", "서술형": "descriptive"}  # question type -> group
KINDS = {group: kind for kind, group in TYPES.items()}

Compared = dict[str, tuple[str, str]]  # group -> the texts to compare, from prediction and reference


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference, in Unicode's composed form. where: its place in the file. kind: the question type, or ""."""

    where: str
    kind: str
    question: str
    answer: str


@dataclass(frozen=True)
class Scheme:
    """How answers are compared: in groups of items, each with its own measures. An item may be in several groups.

    measures: group -> its measures.
    compare: (reference, predicted answer) -> the item's groups, with the texts to compare.
    left_out: if True, measures of an empty group are NaN and the final score omits them; if False, they are 0.
    """

    measures: Mapping[str, tuple[str, ...]]
    compare: Callable[[Reference, str], Compared]
    left_out: bool


def _answer_and_reason(reference: Reference, prediction: str) -> Compared:
    (made_answer, made_reason), (answer, reason) = split_reason(prediction), split_reason(reference.answer)
    compared = {"items": (made_answer, answer)}
    if reason:
        compared["explained" if made_reason else "unexplained"] = (made_reason, reason)
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

    Under scheme rag_qa an answer is `... 가/이 옳다`, followed by a reason. `exact_match` compares the answers of all
    items. The text measures (`rouge_1`, `bertscore`, `bleurt`) compare the reasons where both sides give a reason.
    Under culture_qa the question type decides: `accuracy` for multiple choice (선다형), `exact_match` for short answers
    (단답형), and the text measures, over whole answers, for descriptive answers (서술형).

    tokenizer: splits texts into the terms of ROUGE-1, by kiwi (all morphemes) or white space (whole words).
    bertscore, bleurt: the model, or None. Without a model, the measure and the averages that need it are absent.
    """

    recorded_as = "task/answers"
    name = "answers"
    version = 1
    packages = ("kiwipiepy", "kiwipiepy_model")

    def __init__(
        self,
        scheme: Literal["rag_qa", "culture_qa"] = "rag_qa",
        tokenizer: Literal["kiwi", "whitespace"] = "kiwi",
        bertscore: PairMeasure | None = None,
        bleurt: PairMeasure | None = None,
    ) -> None:
        self._models = {"bertscore": bertscore, "bleurt": bleurt}
        self._tokenizer = TOKENIZERS[tokenizer]
        self._scheme = SCHEMES[scheme]
        self.measures = (*(name for names in self._scheme.measures.values() for name in names), *AVERAGES)
        self.counts = tuple(self._scheme.measures)
        self.subset = {name: group for group, names in self._scheme.measures.items() for name in names}

    def judge(self, predictions: Path, references: Path, wanted: Sequence[str], cache: Cache) -> JudgedItems:
        """Compare both files. The counts of an item: 1 for each of its groups, and its value of each measure."""
        expected, predicted = read_references(references), read_answers(predictions)
        check_pairs(predictions, predicted, references, expected)
        texts = [predicted[item_id] for item_id in expected]
        compared = [self._scheme.compare(one, text) for one, text in zip(expected.values(), texts, strict=True)]
        table: dict[str, list[Any]] = {
            "id": list(expected),
            "kind": [one.kind or "answer" for one in expected.values()],
            "question": [one.question for one in expected.values()],
            "reference": [one.answer for one in expected.values()],
            "prediction": texts,
        }
        counts, absent = self._count(compared, self._needed(wanted), cache)
        for group, names in self._scheme.measures.items():
            for name in [name for name in names if name in counts]:
                values = zip(counts[name].tolist(), counts[group].tolist(), strict=True)
                table[name] = [value if entered else None for value, entered in values]
        absent |= {name: why for name, why in self._absent_averages(counts, absent).items() if name in wanted}
        empty = texts.count("")
        notes = (f"{empty} of {len(texts)} predictions are empty.",) if empty else ()
        return JudgedItems(counts, table, absent=absent, notes=notes)

    def marked(self, item: Mapping[str, str]) -> Marked:
        return [(item["prediction"], "")]  # An answer is right or wrong as a whole.

    def measure(self, sums: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return every measure from sums of item counts [...], in [0, 1]; `bleurt` may lie slightly outside.

        accuracy, exact_match, rouge_1, bertscore, bleurt: sum / number of items in the measure's group. Without
            items, 0 under rag_qa and NaN under culture_qa.
        descriptive_avg: (rouge_1 + bertscore + bleurt) / 3.
        final_score: (exact_match + descriptive_avg) / 2 under rag_qa. Under culture_qa, the mean of accuracy,
            exact_match and descriptive_avg, each only if its group has items. NaN if a sum is missing.
        Example: exact_match .3454 and text measures .2603, .7036, .5313 -> descriptive_avg .4984, final_score .4219.
        """
        found: dict[str, np.ndarray] = {}
        means, present = [], []
        for group, names in self._scheme.measures.items():
            if names:
                found |= {name: self._mean(sums, name, group) for name in names}
                means.append(np.mean([found[name] for name in names], axis=0))
                left_out = self._scheme.left_out and all(name in sums for name in names)
                present.append((np.asarray(sums[group]) > 0) | (not left_out))
        found["descriptive_avg"] = np.mean([found[name] for name in TEXT], axis=0)
        groups = np.sum(present, axis=0)
        total = np.where(present, means, 0).sum(axis=0)
        found["final_score"] = np.divide(total, groups, out=np.full(groups.shape, np.nan), where=groups > 0)
        return found

    def says_nothing(self, sums: Mapping[str, float]) -> Collection[str]:
        return ()  # Without items, a measure is NaN or 0, as the scheme defines.

    def _mean(self, sums: Mapping[str, np.ndarray], name: str, group: str) -> np.ndarray:
        n = np.asarray(sums[group], np.float64)
        if name not in sums:
            return np.full(n.shape, np.nan)
        return np.divide(sums[name], n, out=np.full(n.shape, np.nan if self._scheme.left_out else 0.0), where=n > 0)

    def _needed(self, wanted: Collection[str]) -> set[str]:
        plain = set(self.measures) - set(AVERAGES)
        if "final_score" in wanted:
            return plain
        return plain & {*wanted, *(TEXT if "descriptive_avg" in wanted else ())}

    def _count(
        self, compared: Sequence[Compared], needed: Collection[str], cache: Cache
    ) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        counts, absent = {}, {}
        for group, names in self._scheme.measures.items():
            members = np.array([group in one for one in compared])
            counts[group] = members.astype(np.float64)
            predictions, references = ([one[group][side] for one in compared if group in one] for side in (0, 1))
            for name in [name for name in names if name in needed]:
                values = np.zeros(len(compared))
                if self._scheme.left_out and not predictions:
                    absent[name] = f"no question is of the type {KINDS[group]}"
                else:
                    try:
                        values[members] = self._score(name, predictions, references, cache)
                    except ModelAbsent as error:
                        absent[name] = str(error)
                        continue
                counts[name] = values
        return counts, absent

    def _score(self, name: str, predictions: Sequence[str], references: Sequence[str], cache: Cache) -> np.ndarray:
        if name in ("accuracy", "exact_match"):
            return (accuracy if name == "accuracy" else exact_match)(predictions, references)
        if name == "rouge_1":  # The cache keeps the terms of the references for all files scored against them.
            with watch(name) as progress:
                node = self._tokenizer
                return rouge_1(predictions, references, CachedTokenizer(cache, node, lambda: build(node), progress))
        model = self._models[name]
        if model is None:
            raise ModelAbsent(f"task.{name} is null: no model is given")
        full = [i for i, text in enumerate(predictions) if text]  # Empty predictions score 0; no model reads them.
        values = np.zeros(len(predictions))
        if full:
            values[full] = model.score([predictions[i] for i in full], [references[i] for i in full], cache)
        return values

    def _absent_averages(self, counts: Mapping[str, np.ndarray], absent: Mapping[str, str]) -> dict[str, str]:
        counted = [group for group in self.counts if counts[group].any() or not self._scheme.left_out]
        lacking = [name for group in counted for name in self._scheme.measures[group] if name in absent]
        if lacking:
            return dict.fromkeys(AVERAGES, f"needs {', '.join(lacking)}")
        return {"descriptive_avg": absent["rouge_1"]} if "rouge_1" in absent else {}


def read_references(path: Path) -> dict[str, Reference]:
    """Read id -> reference from a JSON array or JSON lines {id, input: {question_type, question}, output: {answer}}.

    `input` and its fields are optional. Ids and texts are returned in Unicode's composed form.
    """
    return {item_id: _reference(row, where) for item_id, where, row in _rows(path)}


def read_answers(path: Path) -> dict[str, str]:
    """Read id -> answer from a file laid out as for `read_references`. Answers may be empty; `input` is not read."""
    return {item_id: _answer(row, where) for item_id, where, row in _rows(path)}


def _rows(path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    places: dict[str, str] = {}
    for where, row in json_objects(path):
        item_id = nfc(identifier(row, "id", where)[0])
        if item_id in places:
            raise BadInput(f"{where}: the id {item_id!r:.60} is also the id of {places[item_id]}. Keep one of them.")
        places[item_id] = where
        yield item_id, where, row
    if not places:
        raise no_rows(path)


def _reference(row: Mapping[str, Any], where: str) -> Reference:
    answer = _answer(row, where)
    if not alternatives(answer):
        raise BadInput(f"{where}: output.answer is {answer!r:.60}: a reference must contain an answer.")
    given = field(row, "input", dict, where) if "input" in row else {}
    kind, question = (nfc(optional_text(given, key, where)) for key in ("question_type", "question"))
    return Reference(where=where, kind=kind.strip(), question=question, answer=answer)


def _answer(row: Mapping[str, Any], where: str) -> str:
    answer = required(field(row, "output", dict, where), "answer", where)
    if isinstance(answer, int) and not isinstance(answer, bool):  # for example the number of a choice
        return str(answer)
    if not isinstance(answer, str):
        raise BadInput(f"{where}: output.answer is {answer!r:.60}, but must be text or a whole number.")
    return nfc(answer).strip()
