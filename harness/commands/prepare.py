"""`harness prepare`: text files to a folder of documents."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config.check import Invocation
from harness.config.commands import PrepareConfig
from harness.config.text import counted
from harness.corpus.chunking import Chunking
from harness.corpus.files import find_files
from harness.corpus.output import prepare_output
from harness.corpus.preparation import Lengths, Prepared
from harness.data.documents_folder import DOCUMENTS
from harness.data.files import json_lines
from harness.reports.next_steps import flag
from harness.reports.result import CommandAnswer

if TYPE_CHECKING:
    from rich.console import Console

SAMPLE = Path(__file__).parents[1] / "sample" / "profiles" / "*.txt"
BAR = 40  # characters of the longest bar
WORDS, LONGEST = 4, 60  # words of a query, and characters
MODEL = "gpt-4o-mini"  # of a first draft, which with dry_run asks nothing
SHOWN = 5  # files that were skipped; the manifest lists all


@dataclass(frozen=True)
class Documents:
    """A documents folder. written: False if it was there already, from the same files with the same settings."""

    output: Path
    prepared: Prepared
    written: bool

    def to_json(self) -> dict[str, Any]:
        """The JSON document of `harness prepare format=json`."""
        return {"output": str(self.output.absolute()), "written": self.written, **asdict(self.prepared)}


def prepare(config: PrepareConfig, invocation: Invocation) -> CommandAnswer:
    """Prepare files, and say what has become of them."""
    documents = make(config)

    def show(console: Console) -> None:
        for line in _lines(documents):
            console.print(line)
        console.print("Next:")
        for command in _next(documents, config, invocation):
            console.print(f"  {command}")

    return CommandAnswer(documents.to_json(), show)


def make(config: PrepareConfig) -> Documents:
    """Prepare the files that a config names."""
    files = find_files(str(SAMPLE) if config.files is None else config.files)
    output = config.output
    prepared, written = prepare_output(files, Chunking.of(config.document["chunk"]), output, config.unreadable)
    return Documents(output, prepared, written)


def _lines(documents: Documents) -> Iterator[str]:
    found = documents.prepared
    done = "holds" if documents.written else "is up to date, nothing to do: it holds"
    files = counted(found.files, "file") + (f" ({counted(found.texts, 'text')})" if found.texts < found.files else "")
    yield f"{documents.output} {done} {counted(found.documents, 'document')} of {files}."
    if found.spans > found.documents:
        more = found.spans - found.documents
        repeat = f"{counted(more, 'further chunk')} {'repeats' if more == 1 else 'repeat'}"
        yield f"{repeat} a document: it has a span for each place."
    if found.near_duplicates:
        pairs = counted(found.near_duplicates, "pair")
        yield f"{pairs} of documents nearly repeat each other: see {documents.output / 'near_duplicates.jsonl'}."
    yield from _skipped(found.skipped)
    yield from _picture(found.lengths)


def _skipped(skipped: Mapping[str, str]) -> Iterator[str]:
    if skipped:
        yield f"{counted(len(skipped), 'file')} could not be read and {'is' if len(skipped) == 1 else 'are'} left out:"
        yield from (f"  {problem}" for problem in [*skipped.values()][:SHOWN])
        if len(skipped) > SHOWN:
            yield f"  ... and {len(skipped) - SHOWN:,} more: see skipped in manifest.json."


def _picture(lengths: Lengths) -> Iterator[str]:
    if lengths.least == lengths.most:
        yield f"Characters of each document: {lengths.most:,}"
        return
    yield f"Characters of a document: {lengths.least:,} to {lengths.most:,}, half of them up to {lengths.median:,}"
    greatest, width = max(count for _, count in lengths.bins), len(f"{lengths.bins[-1][0]:,}")
    for end, count in lengths.bins[next(place for place, (_, count) in enumerate(lengths.bins) if count) :]:
        yield f"  up to {end:>{width},}  {'█' * -(-BAR * count // greatest)} {count:,}".rstrip()


def _next(documents: Documents, config: PrepareConfig, invocation: Invocation) -> Iterator[str]:
    """Search the documents, and go on to questions about them: for the sample's files there are some."""
    folder, output = flag(invocation.config_dir), documents.output
    search = ["dataset=contest", f"dataset.documents={output / DOCUMENTS}"]
    if config.files is None:
        words = invocation.overrides
        search = ["dataset=chunked", *(f"dataset.{word}" for word in words if word.startswith("chunk."))]
        yield shlex.join(["harness", "run", *folder, *search])
    yield shlex.join(["harness", "search", *folder, *search, f"query={_first_words(output / DOCUMENTS)}"])
    draft = [f"documents={output}", f"model={MODEL}", "limit=5", "dry_run=true"]
    yield shlex.join(["harness", "testset", "draft", *folder, *draft])


def _first_words(documents: Path) -> str:
    """The words that the first document begins with, for a search that finds it."""
    _, row = next(json_lines(documents))
    words = re.findall(r"\w+", str(row["content"]))
    return " ".join(words[:WORDS])[:LONGEST] or "?"
