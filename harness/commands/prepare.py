"""`harness prepare`: turn text files into a folder of documents."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.config.check import Invocation
from harness.config.commands import PrepareConfig
from harness.config.text import counted
from harness.corpus.chunking import Chunking
from harness.corpus.files import find_files
from harness.corpus.preparation import Lengths, Manifest, prepare_output
from harness.data.documents_folder import DOCUMENTS
from harness.data.files import json_lines
from harness.reports.next_steps import flag
from harness.reports.report import Report
from harness.reports.result import CommandAnswer

SAMPLE = Path(__file__).parents[1] / "sample" / "profiles" / "*.txt"
BAR = 40  # length of the longest bar in the chart of document lengths, in characters
WORDS, LONGEST = 4, 60  # maximum numbers of words and of characters in the query that the report proposes
MODEL = "gpt-4o-mini"  # the model that the proposed command names; with dry_run=true, it is not asked
SHOWN = 5  # maximum number of skipped files that are printed; the manifest lists all


def prepare(config: PrepareConfig, invocation: Invocation) -> CommandAnswer:
    files = find_files(str(SAMPLE) if config.files is None else config.files)
    output = config.output
    found, written = prepare_output(files, Chunking.of(config.document["chunk"]), output, config.unreadable)
    held = {name: value for name, value in vars(found).items() if name not in ("inputs", "chunk", "sha256")}
    document = {"output": output.absolute(), "written": written, **held}
    said = Report("", files=[*_lines(output, found, written)], steps=[*_next(config, invocation)])
    return CommandAnswer(document, said)


def _lines(output: Path, found: Manifest, written: bool) -> Iterator[str]:
    done = "holds" if written else "is up to date. It holds"
    files = counted(found.files, "file") + (f" ({counted(found.texts, 'text')})" if found.texts < found.files else "")
    yield f"{output} {done} {counted(found.documents, 'document')} of {files}."
    if found.spans > found.documents:
        more = found.spans - found.documents
        repeat = f"{counted(more, 'further chunk')} {'repeats' if more == 1 else 'repeat'}"
        yield f"{repeat} the text of a document. Such a document has a span for each place where its text occurs."
    if found.near_duplicates:
        pairs = counted(found.near_duplicates, "pair")
        yield f"{pairs} of documents with nearly the same text: see {output / 'near_duplicates.jsonl'}."
    yield from _skipped(found.skipped)
    yield from _picture(found.lengths)


def _skipped(skipped: Mapping[str, str]) -> Iterator[str]:
    if skipped:
        yield f"{counted(len(skipped), 'file')} could not be read and {'is' if len(skipped) == 1 else 'are'} left out:"
        yield from (f"  {problem}" for problem in [*skipped.values()][:SHOWN])
        if len(skipped) > SHOWN:
            yield f"  ... and {len(skipped) - SHOWN:,} more: see `skipped` in manifest.json."


def _picture(lengths: Lengths) -> Iterator[str]:
    if lengths.least == lengths.most:
        yield f"Characters of each document: {lengths.most:,}"
        return
    yield (
        f"Characters per document: {lengths.least:,} to {lengths.most:,}; "
        f"half of the documents have at most {lengths.median:,}"
    )
    greatest, width = max(count for _, count in lengths.bins), len(f"{lengths.bins[-1][0]:,}")
    for end, count in lengths.bins[next(place for place, (_, count) in enumerate(lengths.bins) if count) :]:
        yield f"  up to {end:>{width},}  {'█' * -(-BAR * count // greatest)} {count:,}".rstrip()


def _next(config: PrepareConfig, invocation: Invocation) -> Iterator[str]:
    """Yield commands that search the documents and draft questions. For the sample texts, use dataset=chunked."""
    folder, output = flag(invocation.config_dir), config.output
    search = ["dataset=contest", f"dataset.documents={output / DOCUMENTS}"]
    if config.files is None:
        words = invocation.overrides
        search = ["dataset=chunked", *(f"dataset.{word}" for word in words if word.startswith("chunk."))]
        yield shlex.join(["harness", "run", *folder, *search])
    yield shlex.join(["harness", "search", *folder, *search, f"query={_first_words(output / DOCUMENTS)}"])
    draft = [f"documents={output}", f"model={MODEL}", "limit=5", "dry_run=true"]
    yield shlex.join(["harness", "testset", "draft", *folder, *draft])


def _first_words(documents: Path) -> str:
    _, row = next(json_lines(documents))
    words = re.findall(r"\w+", str(row["content"]))
    return " ".join(words[:WORDS])[:LONGEST] or "?"
