"""The output folder of `harness prepare`: written as `NAME.unfinished`, then renamed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.config.canonical import digest
from harness.corpus.chunking import Chunking
from harness.corpus.files import SourceFile
from harness.corpus.preparation import (
    SUMMED,
    WORK_FOLDER,
    Manifest,
    Unreadable,
    preparation_identity,
    prepare_documents,
)
from harness.data.documents_folder import MANIFEST, TEXTS, DocumentsFolder
from harness.data.files import some
from harness.errors import BadInput

UNFINISHED, REPLACED = ".unfinished", ".replaced"
NAMES = {*SUMMED, MANIFEST, TEXTS}


def prepare_output(
    files: Sequence[SourceFile], chunking: Chunking, output: Path, unreadable: Unreadable = "stop"
) -> tuple[Manifest, bool]:
    """Prepare files into the folder `output`. Return its manifest and whether it had to be written.

    Keep a folder prepared from the same files with the same settings; replace one with other contents. Raise BadInput
    for a folder that `harness prepare` did not write, or that has been changed since.
    """
    place = Path(str(output.resolve()))  # follow a link: replace its target
    if not place.name:
        raise BadInput(f"output={output} is the root of all folders. Name one in it.")
    unfinished = place.with_name(place.name + UNFINISHED)
    for one in files:
        if any(one.path.resolve().is_relative_to(folder) for folder in (place, unfinished)):
            raise BadInput(f"files names {one.path}, which lies in output={output}. Choose another output, or files.")
    finished = _checked(place, output)
    usable = finished and not (finished.skipped and unreadable == "stop")
    if finished and usable and finished.inputs == digest(preparation_identity(files, chunking)):
        return finished, False
    with _working(unfinished, output):
        prepared = prepare_documents(files, chunking, unfinished, unreadable)
    _replace(place, unfinished)
    return prepared, True


def _checked(place: Path, output: Path) -> Manifest | None:
    if not place.exists():
        return None
    if not place.is_dir():
        raise BadInput(f"output={output} is a file. Name a folder.")
    names = {one.name for one in place.iterdir()}
    if not names:
        return None
    if others := sorted(names - NAMES):
        raise BadInput(
            f"output={output} holds files that `harness prepare` did not write ({some(others)}). Choose another "
            "folder, or move these files away."
        )
    DocumentsFolder(place, "output")
    manifest = Manifest.read(place)
    if changed := manifest.changed(place):
        raise BadInput(
            f"{output / changed} has changed since `harness prepare` wrote it. Choose another output, or delete "
            f"{output} and run the command again."
        )
    return manifest


@contextmanager
def _working(unfinished: Path, output: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    if unfinished.exists():
        others = {one.name for one in unfinished.iterdir()} - NAMES - {WORK_FOLDER} if unfinished.is_dir() else {""}
        if others or (unfinished / WORK_FOLDER / "lock").is_dir():
            raise BadInput(
                f"{unfinished} is in the way: `harness prepare` works there, but did not make it. Move it away, or "
                f"choose another output than {output}."
            )
    work = unfinished / WORK_FOLDER
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"output={output} cannot be made: {error.strerror}. Choose another folder.") from None
    try:
        with FileLock(work / "lock", timeout=0):
            yield
    except Timeout:
        raise BadInput(f"output={output} is being written by another process. Wait for it.") from None
    except BaseException:
        if not any((unfinished / TEXTS).glob("*")):
            shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _replace(place: Path, finished: Path) -> None:
    replaced = place.with_name(place.name + REPLACED)
    if replaced.is_dir() and not {one.name for one in replaced.iterdir()} - NAMES:
        shutil.rmtree(replaced)  # left by a killed process
    if place.exists():
        place.rename(replaced)
    finished.rename(place)
    shutil.rmtree(replaced, ignore_errors=True)
