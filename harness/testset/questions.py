"""What is open about a test set, in words, with the command that settles it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.config.text import counted
from harness.errors import BadInput
from harness.testset.resolution import Question, What

SHOWN = 3  # of each kind
_MEANING: dict[What, str] = {
    "not pooled": "no document is pooled",
    "no document judged": "no document is judged",
    "unjudged": "pooled, and not judged",
    "cannot tell": "nobody can tell",
    "people disagree": "people disagree",
    "answered": "answered, though the query is unanswerable",
}
_SETTLED = {
    "not pooled": "harness testset pool testset={testset} experiment_name=NAME",
    "no document judged": "harness testset judge testset={testset} model=NAME",
    "unjudged": "harness testset judge testset={testset} model=NAME",
    "cannot tell": "harness testset review testset={testset} reviewer=NAME sample=open",
    "people disagree": "harness testset review testset={testset} reviewer=NAME sample=open",
    "answered": "correct its kind and evidence in {testset}/queries.jsonl, or, if the document does not answer it, "
    "harness testset review testset={testset} reviewer=NAME sample=open",
}


def counts(questions: Sequence[Question]) -> list[str]:
    """A line for each kind of open question: how many, and the first few."""
    return [line for _, line in _counted(questions)]


def _counted(questions: Sequence[Question]) -> Iterator[tuple[What, str]]:
    for what, meaning in _MEANING.items():
        some = [one for one in questions if one.what == what]
        if some:
            shown = ", ".join(_named(one) for one in some[:SHOWN]) + (", …" if len(some) > SHOWN else "")
            yield what, f"{len(some):>7,}  {meaning} ({shown})"


def refuse_open(questions: Sequence[Question], queries: int, testset: Path) -> None:
    """BadInput, with what settles them, if there are open questions. queries: of the whole test set."""
    if not questions:
        return
    about = len({one.query_id for one in questions})
    rest = (
        f"Settle them, or leave these queries out of this version: leave_out=true keeps {queries - about:,} of "
        f"{counted(queries, 'query')}."
        if about < queries
        else "Settle them: no query is without one."
    )
    place = shlex.quote(str(testset))
    listed = "\n".join(f"{line}: {_SETTLED[what].format(testset=place)}" for what, line in _counted(questions))
    raise BadInput(f"testset={testset} has {counted(len(questions), 'open question')}:\n{listed}\n{rest}")


def _named(one: Question) -> str:
    return one.query_id if one.doc_id is None else f"{one.query_id} / {one.doc_id}"
