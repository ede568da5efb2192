"""Filters that reject drafted queries by their texts alone, and flag drafts for a reviewer.

No retriever decides about a draft: if only the questions that one retriever answers were kept, this retriever would
win (see `easiness`). The word lists are short on purpose: people review the drafts that pass, but never see rejected
drafts.
"""

from __future__ import annotations

import functools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.config.commands import FilterKeys
from harness.data import scripts
from harness.testset.draft.drafts import Draft, Rejection
from retrievers.base import Document, Progress, Query
from retrievers.lexical.tokenize import CONTENT_TAGS, KIWI_TAGS, STOP_WORDS, Kiwi

# Nouns by which a draft refers to a text that only the model has seen. `(?<!\w)이` must not match `많이 글을`. `글`
# matches only before a particle or at the end of a word, so not in `이 글로벌`. `내용(?!물)` leaves out `위 내용물`, a
# medical term.
_SHOWN = (
    "본문|지문|구절|문단|단락|텍스트|컨텍스트|발췌문|문서|문장|기사|자료|내용(?!물)|"
    r"글(?=[을은의에이]|과 |에서|[\s?.,]|$)"
)
_FROM_TEXT = "에 따르면|에 의하면|에 나온|에 나오는|에 언급|에 제시|에 기술된|에 적힌|에 설명된|에서 언급|에서 설명"
_KOREAN = (
    rf"(?<!\w)(?:위|아래|윗|이|본|해당|상기|앞|제시된|주어진|제공된|언급된)의? ?(?:{_SHOWN})",
    rf"(?<!\w)다음 (?:{_SHOWN})",
    rf"(?<!\w)(?:본문|지문|구절|문단|단락|컨텍스트|텍스트|글|문서|내용)(?:{_FROM_TEXT})",
    r"(?<!\w)(?:위|앞)에서 (?:언급|설명|말|제시)",
    r"(?<!\w)(?:앞서|상기) (?:언급|설명|제시)",
)
# `in the context of`, `in the text editor` and `the document required for` must not match: none means the text shown.
_PAPER = "passage|paragraph|excerpt|snippet|article|document|text|context|chunk|section|author"
_HERE = "above|given|provided|following|preceding|supplied"
_ENGLISH = (
    rf"\baccording to (?:the|this|that) (?:{_HERE} )?(?:{_PAPER})s?\b(?! of)",
    rf"\b(?:based on|as (?:stated|mentioned|described) in|mentioned in|described in|stated in|discussed in) "
    rf"(?:the|this) (?:{_HERE} )?(?:{_PAPER})\b(?! of)",
    rf"\b(?:in|from) (?:the|this) (?:{_HERE} )?(?:{_PAPER})(?= ?(?:[?.,!]|$))",
    rf"\b(?:this|the (?:{_HERE})) (?:{_PAPER})\b",
    r"\bthe (?:passage|excerpt)\b",
    r"\b(?:mentioned|described|stated|given|listed) above\b",
)
POINTS_AT_TEXT = re.compile("|".join(_KOREAN + _ENGLISH), re.IGNORECASE)

# At the beginning of a question, `이 회사` refers to nothing. Later in a question, it may refer to a word before it.
_THINGS = (
    "회사|기업|업체|제품|상품|서비스|모델|차량|기술|인물|사람|사건|전쟁|작품|책|영화|노래|곡|도시|나라|국가|지역|장소|건물|"
    "기관|단체|학교|대학|정책|제도|법|계획|사업|현상|방법|과정|연구|실험|이론|프로젝트|프로그램|시스템|플랫폼|생물|동물|식물"
)
_REFERENCE_KO = rf"(?:이|그|저|해당|동|당) ?(?:{_THINGS})(?=[은는이가을를의에도과와]|들|[\s?.,]|$)"
_PRONOUN_KO = "(?:이것|그것|저것|이는|그는|그녀|그들|이들|여기|거기|저기|그때|이때|그곳|이곳)"
_PRONOUNS_EN = ("its", "he", "his", "she", "her", "they", "their", "this", "these", "those")
_REFERENCE_EN = "|".join([*_PRONOUNS_EN, *map(str.capitalize, _PRONOUNS_EN)])  # not `ITS`, an abbreviation
_ASKING_EN = r"(?:[Ww](?:hat|ho|here|hen|hy|hich)|[Hh]ow) "
_VERB_EN = r"(?:[Ii]s|[Aa]re|[Ww]as|[Ww]ere|[Dd]oes|[Dd]o|[Dd]id|[Hh]as|[Hh]ave|[Cc]an|[Ww]ill) "
BEGINS_WITH_REFERENCE = re.compile(
    rf"\W*(?:{_REFERENCE_KO}|{_PRONOUN_KO}|(?:(?:{_ASKING_EN})?{_VERB_EN})?(?:{_REFERENCE_EN})\b)"
)

# Anywhere in a later turn, these words refer to an earlier turn.
_BACK_KO = "그 |그런|그러|그럼|그렇|그건|그게|그중|이건|이게|이런|이렇|걔|방금|아까|말한|위의"
_BACK_EN = "it|its|he|him|his|she|her|they|them|their|this|that|these|those|there|then|one|ones"
REFERENCE = re.compile(rf"(?<!\w)(?:{_REFERENCE_KO}|{_PRONOUN_KO}|{_BACK_KO})|\b(?:{_BACK_EN})\b", re.IGNORECASE)

# Endings of statements. Nouns such as `바다` and `판다` also end in 다, so only endings of verbs match.
_STATES = re.compile(r"(?:니다|[었았였했됐겠]다|이다|한다|된다|있다|없다|같다)[.!]*\s*$")
_ASKS = re.compile(r"궁금|싶|부탁|바라|바랍|바란|원하|원합|원한|모르|모릅|알려|설명해|[?？]")
_NOTHING = re.compile(
    r"\W*(?:(?:해당 ?|질문 ?|관련 ?)?(?:없음|없습니다)|no questions?|none|null|nan|n/?a|empty|undefined)\W*",
    re.IGNORECASE,
)


def asks_nothing(question: str) -> bool:
    """Return whether a question is a Korean statement or a word for "nothing"."""
    return bool(_NOTHING.fullmatch(question)) or bool(_STATES.search(question) and not _ASKS.search(question))


ANSWERED = ("fact", "search", "conversation")  # the kinds of queries that the corpus answers
SHORTEST = 3  # letters and digits; most real queries have at least five, but a name alone may have three
LONGEST = 600  # characters; the longest real query seen has 527
GRAM = 4  # morphemes in a gram: about two Korean words with their particles and endings
FEWEST_GRAMS = 4  # texts with fewer grams are names or terms, such as `자율 주행 기술 개발`, which cannot be reworded
SAME_SCRIPT = 0.2  # A text is in every script with this share of its letters: a few Latin names in Korean count not.
FEWEST_LETTERS = 20  # The script of a document with fewer letters is taken as unknown.
EXAMPLES_IN_SCRIPT = 0.1  # A script is allowed if at least this share of the examples is in it.
NO_HELP = "every word that the earlier turns share with the document is also in the last turn"

_SYMBOLS = frozenset({"SF", "SP", "SS", "SSO", "SSC", "SE", "SO", "SW"})
_MORPHEMES = tuple(sorted(KIWI_TAGS - _SYMBOLS))
_WORDS = (*CONTENT_TAGS, "MM", "XPN", "W_*")  # MM, XPN: `두` in `두 칸` and `무` in `무승부` matter in answers.
_NAMES = ("NNP", "SL", "SN", "SH")  # Drafts that differ in a name or a number ask different questions.
_ASKING = {"who", "whom", "whose", "which", "what", "when", "where", "why", "how"}  # These tell questions apart.
_IGNORED = (STOP_WORDS["english"] | {"yes"}) - _ASKING


@dataclass(frozen=True)
class _Terms:
    """The terms of each text. morphemes: all but symbols. words: content words. names: names and numbers."""

    morphemes: Mapping[str, Sequence[str]]
    words: Mapping[str, frozenset[str]]
    names: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, drafts: Sequence[Draft], shown: Sequence[Document], progress: Progress | None) -> _Terms:
        """Analyse all texts that the filters need. shown: the document of each draft."""
        said = [turn.content for draft in drafts for turn in draft.turns]
        answers = [draft.answer for draft in drafts]
        discussed = [one.indexed_text for draft, one in zip(drafts, shown, strict=True) if draft.kind == "conversation"]
        words = _analysed(_WORDS, [*said, *answers, *discussed], progress)
        return cls(
            _analysed(_MORPHEMES, [*said, *(one.text for one in shown)], progress),
            {text: frozenset(terms) - _IGNORED for text, terms in words.items()},
            {text: frozenset(terms) for text, terms in _analysed(_NAMES, said, progress).items()},
        )


def _analysed(tags: Sequence[str], texts: Sequence[str], progress: Progress | None) -> dict[str, list[str]]:
    """Return text -> its morphemes with one of the tags, in order."""
    unique = list(dict.fromkeys(texts))
    found = Kiwi(tags)(unique, progress).lists()
    # Kiwi takes a full stop after a number for a part of the number.
    return {text: [term.rstrip(".,") or term for term in terms] for text, terms in zip(unique, found, strict=True)}


@dataclass(frozen=True)
class _Case:
    """A draft, and the data for its checks. shown: its document, or an empty document. allowed: scripts that
    questions may use; empty for all. copied: maximum share of a question's 4-grams of morphemes that the document may
    contain. spoken: the user's turns. asked: content words in these turns. names: names and numbers in these turns."""

    draft: Draft
    shown: Document
    terms: _Terms
    allowed: frozenset[str]
    copied: float

    @functools.cached_property
    def spoken(self) -> list[str]:
        return [turn.content for turn in self.draft.turns if turn.role == "user"]

    @functools.cached_property
    def asked(self) -> frozenset[str]:
        return self.words(self.spoken)

    @functools.cached_property
    def names(self) -> frozenset[str]:
        return frozenset().union(*(self.terms.names[text] for text in self.spoken))

    def words(self, texts: Iterable[str]) -> frozenset[str]:
        return frozenset().union(*(self.terms.words[text] for text in texts))


def sift(
    drafts: Sequence[Draft],
    documents: Mapping[str, Document],
    filters: FilterKeys,
    examples: Sequence[Query] = (),
    progress: Progress | None = None,
) -> tuple[list[Draft], list[Rejection]]:
    """Return (drafts that pass, rejections), each in the order of `drafts`.

    If several drafts ask the same, only one is kept: the first that is not `unanswerable` or, without such a draft, the
    first. A draft may be in the language of its document or of the examples. documents: all documents that the drafts
    name, by id. examples: real queries. progress: counts the analysed texts.
    """
    cases = _cases(drafts, documents, examples, filters, progress)
    rejected: dict[int, Rejection] = {}
    for number, case in enumerate(cases):
        found = ((reason, check(case)) for reason, check in CHECKS.items())
        if first := next(((reason, detail) for reason, detail in found if detail), None):
            rejected[number] = Rejection(case.draft, *first)
    left = [number for number in range(len(cases)) if number not in rejected]
    for number, first_draft in _duplicates([cases[number] for number in left], filters.duplicate).items():
        detail = f"asks the same as {first_draft.query_id}: {first_draft.question}"
        rejected[left[number]] = Rejection(drafts[left[number]], "duplicate", detail)
    accepted = [_flagged(case) for number, case in enumerate(cases) if number not in rejected]
    return accepted, [rejected[number] for number in sorted(rejected)]


def _form(case: _Case) -> str:
    turns = case.draft.turns
    if not turns or turns[-1].role != "user":
        return "the last turn is not the user's"
    if not all(turn.content.strip() for turn in turns):
        return "a turn is empty"
    if case.draft.kind == "conversation" and sum(turn.role == "user" for turn in turns) < 2:
        return "a conversation in which the user speaks once"
    return ""


def _length(case: _Case) -> str:
    question = case.draft.question
    if sum(map(str.isalnum, question)) < SHORTEST:
        return f"shorter than {SHORTEST} letters or digits"
    return f"{len(question)} characters, more than {LONGEST}" if len(question) > LONGEST else ""


def _language(case: _Case) -> str:
    question = case.draft.question
    shares = scripts.shares(question)
    if not shares or not case.allowed or any(shares.get(script, 0) >= SAME_SCRIPT for script in case.allowed):
        return ""
    known = set(_letters(case.shown.text).split())
    if known.issuperset(_letters(question).split()):  # The question may list names from the document.
        return ""
    return f"written in {scripts.main_script(question)}, not in {' or '.join(sorted(case.allowed))}"


def _no_question(case: _Case) -> str:
    if case.draft.kind != "none" and asks_nothing(case.draft.question):  # Messages of kind `none` may be remarks.
        return "a statement, or a note that there is nothing to ask"
    return ""


def _deictic(case: _Case) -> str:
    found = [match for text in case.spoken if (match := POINTS_AT_TEXT.search(text))]
    if not found and case.draft.kind != "none" and (match := BEGINS_WITH_REFERENCE.match(case.spoken[0])):
        found = [match]
    return f"{found[0][0].strip()!r} points at something that the user does not see" if found else ""


def _evidence(case: _Case) -> str:
    needed = case.draft.kind in ANSWERED and not case.draft.evidence
    return "no passage of the document is quoted" if needed else ""


def _answer(case: _Case) -> str:
    if case.draft.kind not in ANSWERED:
        return ""
    if not case.draft.answer.strip():
        return "there is no answer"
    if _letters(case.draft.answer) == _letters(case.draft.question):
        return "the answer is the question"
    answered = case.words([case.draft.answer])
    if answered and answered <= case.words(turn.content for turn in case.draft.turns):
        return "all content words of the answer are in the question"
    return ""


def _copied(case: _Case) -> str:
    present = set(_grams(case.terms.morphemes[case.shown.text]))
    of_turns = [_grams(case.terms.morphemes[text]) for text in case.spoken]
    shares = [sum(gram in present for gram in grams) / len(grams) for grams in of_turns if len(grams) >= FEWEST_GRAMS]
    if max(shares, default=0) > case.copied:
        return f"{100 * max(shares):.0f} % of its {GRAM}-grams of morphemes appear in the document"
    return ""


# Reason -> check. A check returns what is wrong, or "". The first check that finds a fault gives the reason.
CHECKS: Mapping[str, Callable[[_Case], str]] = {
    "form": _form,
    "length": _length,
    "language": _language,
    "no question": _no_question,
    "deictic": _deictic,
    "evidence": _evidence,
    "answer": _answer,
    "copied": _copied,
}


def _duplicates(cases: Sequence[_Case], least: float) -> dict[int, Draft]:
    """Return position of a duplicate -> the draft that is kept instead.

    Only drafts that share a rare word are compared (prefix filtering: Chaudhuri, Ganti & Kaushik 2006). The rare words
    of a draft of n words are its n - ceil(least * n) + 1 rarest words. If the Jaccard similarity of two drafts is at
    least `least`, they share a rare word.
    """
    counts = Counter(word for case in cases for word in case.asked)
    by_word: dict[str, list[int]] = {}  # rare word -> the kept drafts with this word, as indices into `order`
    by_text: dict[str, int] = {}
    found: dict[int, Draft] = {}
    order = sorted(range(len(cases)), key=lambda number: cases[number].draft.kind == "unanswerable")
    for place, number in enumerate(order):
        case = cases[number]
        words = sorted(case.asked, key=lambda word: (counts[word], word))
        rare = words[: len(words) - math.ceil(least * len(words) - 1e-9) + 1]
        text = _letters(" ".join(case.spoken))
        near = {other for word in rare for other in by_word.get(word, ()) if _same(case, cases[order[other]], least)}
        near |= {by_text[text]} if text in by_text else set()
        if near:
            found[number] = cases[order[min(near)]].draft
            continue
        by_text[text] = place
        for word in rare:
            by_word.setdefault(word, []).append(place)
    return found


def _same(one: _Case, other: _Case, least: float) -> bool:
    return one.names == other.names and len(one.asked & other.asked) >= least * len(one.asked | other.asked) - 1e-9


def _flagged(case: _Case) -> Draft:
    """Flag a conversation whose last turn refers to no earlier turn, and contains all words that the user's earlier
    turns share with the document."""
    draft = case.draft
    if draft.kind != "conversation" or REFERENCE.search(draft.question):
        return draft
    *earlier, last = case.spoken
    if case.words(earlier) & case.words([case.shown.indexed_text]) - case.words([last]):
        return draft
    return replace(draft, flags=(*draft.flags, NO_HELP))


def _cases(
    drafts: Sequence[Draft],
    documents: Mapping[str, Document],
    examples: Sequence[Query],
    filters: FilterKeys,
    progress: Progress | None,
) -> list[_Case]:
    shown = [documents[draft.doc_id] if draft.doc_id else Document("", "") for draft in drafts]
    terms = _Terms.of(drafts, shown, progress)
    of_examples = Counter(scripts.main_script(example.text) for example in examples)
    real = {script for script, count in of_examples.items() if count >= EXAMPLES_IN_SCRIPT * len(examples)}
    allowed = {one.text: _scripts(one.text) for one in shown}
    anywhere = frozenset(real).union(*allowed.values())
    return [
        _Case(draft, one, terms, allowed[one.text] | real if allowed[one.text] else anywhere, filters.copied)
        for draft, one in zip(drafts, shown, strict=True)
    ]


def _scripts(text: str) -> frozenset[str]:
    if sum(map(str.isalpha, text)) < FEWEST_LETTERS:
        return frozenset()
    return frozenset(script for script, share in scripts.shares(text).items() if share >= SAME_SCRIPT)


def _grams(morphemes: Sequence[str]) -> list[tuple[str, ...]]:
    return [tuple(morphemes[start : start + GRAM]) for start in range(len(morphemes) - GRAM + 1)]


def _letters(text: str) -> str:
    """Return the text in lower case, without punctuation, and with single spaces."""
    folded = unicodedata.normalize("NFC", text.casefold())
    return " ".join("".join(letter if letter.isalnum() else " " for letter in folded).split())
