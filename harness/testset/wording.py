"""Words that show, without any model, that a question cannot be understood alone or asks nothing. Korean and English.

The lists are short on purpose: a person reviews what passes, but nobody sees again what is rejected.
"""

from __future__ import annotations

import re

# What a model was shown and nobody else sees. `(?<!\w)이` must not find `많이 글을`. What follows `글` is a particle or
# the end of the word, since `이 글로벌` begins like `이 글로`. `위 내용물` is medicine.
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
# `in the context of`, `in the text editor` and `the document required for` are said of other things.
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

# A question that begins with `이 회사`; further on, the referent may be in the question itself.
_THINGS = (
    "회사|기업|업체|제품|상품|서비스|모델|차량|기술|인물|사람|사건|전쟁|작품|책|영화|노래|곡|도시|나라|국가|지역|장소|건물|"
    "기관|단체|학교|대학|정책|제도|법|계획|사업|현상|방법|과정|연구|실험|이론|프로젝트|프로그램|시스템|플랫폼|생물|동물|식물"
)
_REFERENCE_KO = rf"(?:이|그|저|해당|동|당) ?(?:{_THINGS})(?=[은는이가을를의에도과와]|들|[\s?.,]|$)"
_PRONOUN_KO = "(?:이것|그것|저것|이는|그는|그녀|그들|이들|여기|거기|저기|그때|이때|그곳|이곳)"
_PRONOUNS_EN = ("its", "he", "his", "she", "her", "they", "their", "this", "these", "those")
_REFERENCE_EN = "|".join([*_PRONOUNS_EN, *map(str.capitalize, _PRONOUNS_EN)])  # but not ITS, which is a system
_ASKING_EN = r"(?:[Ww](?:hat|ho|here|hen|hy|hich)|[Hh]ow) "
_VERB_EN = r"(?:[Ii]s|[Aa]re|[Ww]as|[Ww]ere|[Dd]oes|[Dd]o|[Dd]id|[Hh]as|[Hh]ave|[Cc]an|[Ww]ill) "
BEGINS_WITH_REFERENCE = re.compile(
    rf"\W*(?:{_REFERENCE_KO}|{_PRONOUN_KO}|(?:(?:{_ASKING_EN})?{_VERB_EN})?(?:{_REFERENCE_EN})\b)"
)

# Anywhere in a later turn, these lead back to an earlier one.
_BACK_KO = "그 |그런|그러|그럼|그렇|그건|그게|그중|이건|이게|이런|이렇|걔|방금|아까|말한|위의"
_BACK_EN = "it|its|he|him|his|she|her|they|them|their|this|that|these|those|there|then|one|ones"
REFERENCE = re.compile(rf"(?<!\w)(?:{_REFERENCE_KO}|{_PRONOUN_KO}|{_BACK_KO})|\b(?:{_BACK_EN})\b", re.IGNORECASE)

# Sentences that state something. `바다` and `판다` end in 다 as well: only endings of verbs count.
_STATES = re.compile(r"(?:니다|[었았였했됐겠]다|이다|한다|된다|있다|없다|같다)[.!]*\s*$")
_ASKS = re.compile(r"궁금|싶|부탁|바라|바랍|바란|원하|원합|원한|모르|모릅|알려|설명해|[?？]")
_NOTHING = re.compile(
    r"\W*(?:(?:해당 ?|질문 ?|관련 ?)?(?:없음|없습니다)|no questions?|none|null|nan|n/?a|empty|undefined)\W*",
    re.IGNORECASE,
)


def asks_nothing(question: str) -> bool:
    """Whether a question is a Korean sentence that states something, or a word for `nothing`."""
    return bool(_NOTHING.fullmatch(question)) or bool(_STATES.search(question) and not _ASKS.search(question))
