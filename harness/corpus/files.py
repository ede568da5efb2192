"""Find the files of a corpus by patterns, in a fixed order, and only inside the folders that the patterns name."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from harness.data.files import listing
from harness.errors import BadInput, did_you_mean

# Temporary files. Patterns skip them. Exception: `T*` finds Thumbs.db, since both begin with the same plain character.
_TEMPORARY = ("*~", "~$*", "#*#", "*.swp", "*.tmp", "*.part", "*.crdownload", "Thumbs.db", "desktop.ini", "__MACOSX")
_SHOWN = 100  # maximum number of problems in a message


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a corpus.

    name: the path that is recorded, with `/` and in Unicode NFC. It is the same on every machine: it is relative to the
        working folder or, for files outside it, to the parent of the folder where the pattern starts.
    """

    name: str
    path: Path

    @property
    def size(self) -> int:
        """The size in bytes; 0 if the file has vanished."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def sha256(self) -> str:
        """Return the sha256 of the file. Raise BadInput if it cannot be read."""
        try:
            with self.path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise BadInput(f"{self.path} cannot be read: {error.strerror}.") from None


def find_files(patterns: str | Sequence[str]) -> list[SourceFile]:
    """Return the files that match any of the patterns, in ascending order of names.

    Raise BadInput with all problems, such as links out of a pattern's folder, or a pattern that matches no file.
    patterns: paths with the wildcards `*`, `?`, `[...]`, and `**` for any number of folders. Wildcards leave out hidden
        files and the temporary files of editors.
    """
    found: dict[str, SourceFile] = {}
    problems: list[str] = []
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        known = len(problems)
        try:
            files = _matches(str(pattern), problems)
        except OSError as error:  # the name is too long, or this user has no access to the folder
            problems.append(f"files: {pattern!s:.200}: {error.strerror}.")
            continue
        if not files and len(problems) == known:
            problems.append(_nothing(str(pattern)))
        for one in files:
            other = found.setdefault(one.name, one)
            if other is not one and not other.path.samefile(one.path):
                problems.append(
                    f"{other.path} and {one.path} would both be recorded as {one.name}. Rename one of the folders, or "
                    "run the command in a folder that contains both."
                )
    if problems:
        raise corpus_error(problems)
    if not found:
        raise BadInput("The key files names no file. Give a pattern such as files='corpus/**/*'.")
    return [found[name] for name in sorted(found)]


def corpus_error(problems: Sequence[str]) -> BadInput:
    """Return one error for all problems. There must be at least one problem."""
    if len(problems) == 1:
        return BadInput(problems[0])
    rest = f"\n... and {len(problems) - _SHOWN:,} more" if len(problems) > _SHOWN else ""
    return BadInput(f"{len(problems):,} problems with the files:\n- " + "\n- ".join(problems[:_SHOWN]) + rest)


def _matches(pattern: str, problems: list[str]) -> list[SourceFile]:
    if not pattern.strip() or "\0" in pattern:
        problems.append(f"files: {pattern!r} is not a path. Give a pattern such as files='corpus/**/*'.")
        return []
    parts = PurePosixPath(pattern).parts
    plain = next((at for at, part in enumerate(parts) if set(part) & set("*?[")), len(parts))
    if plain == len(parts) or os.path.lexists(pattern):  # the name of a file may contain brackets
        path = Path(pattern)
        if path.is_dir():
            problems.append(f"{path} is a folder. Name the files in it, such as files='{path}/**/*'.")
        elif not os.path.lexists(path):
            problems.append(_missing(path))
        else:
            return list(_Search(path.parent, problems).file(path))
        return []
    base, wild = Path(*parts[:plain]), parts[plain:]
    if ".." in wild:
        problems.append(f"{pattern}: `..` after a wildcard would lead out of {base}. Write the path without `..`.")
        return []
    if not base.is_dir():
        problems.append(_missing(base))
        return []
    if wild[-1] == "**":
        wild = (*wild, "*")
    return list(_Search(base, problems).files(wild))


class _Search:
    def __init__(self, base: Path, problems: list[str]) -> None:
        self.base, self.problems = base, problems
        self.inside = base.resolve()
        spelled = Path(os.path.normpath(base.absolute()))
        here = Path(os.path.normpath(Path.cwd()))
        self.prefix = spelled.relative_to(here) if spelled.is_relative_to(here) else Path(spelled.name)

    def files(self, wild: tuple[str, ...]) -> Iterator[SourceFile]:
        """Yield the files whose path below the base matches `wild`, a pattern's parts from its first wildcard on."""
        waiting, seen = [(self.base, wild)], set()
        while waiting:
            folder, parts = waiting.pop()
            place = (folder.resolve(), parts)
            if place in seen:
                continue
            seen.add(place)
            if parts[0] == "**":
                waiting.append((folder, parts[1:]))
            for path in self._entries(folder, parts[0]):
                if path.is_dir():
                    if (parts[0] == "**" or len(parts) > 1) and self._may_enter(path, place[0]):
                        waiting.append((path, parts if parts[0] == "**" else parts[1:]))
                elif len(parts) == 1:
                    yield from self.file(path)

    def file(self, path: Path) -> Iterator[SourceFile]:
        name = unicodedata.normalize("NFC", (self.prefix / path.relative_to(self.base)).as_posix())
        try:
            name.encode()
        except UnicodeEncodeError:
            self.problems.append(
                f"{path!s:.200}: the name is not UTF-8. Rename the file.".encode(errors="replace").decode()
            )
            return
        if not path.is_symlink() or self._leads_inside(path):
            if path.is_file():
                yield SourceFile(name, path)
            else:
                self.problems.append(
                    f"{path} is a device or a pipe, but a file is expected. Save its output to a file."
                )

    def _entries(self, folder: Path, part: str) -> list[Path]:
        try:
            names = sorted(path.name for path in folder.iterdir())
        except OSError as error:
            self.problems.append(f"{folder} cannot be read: {error.strerror}.")
            return []
        part = unicodedata.normalize("NFC", part)
        hidden = [one for one in (".*", *_TEMPORARY) if not (part[0] == one[0] and part[0] not in "*?[")]
        known = ((unicodedata.normalize("NFC", name), name) for name in names)
        return [
            folder / name
            for one, name in known
            if fnmatchcase(one, part) and not any(fnmatchcase(one, other) for other in hidden)
        ]

    def _may_enter(self, folder: Path, parent: Path) -> bool:
        """Return False for a link whose target contains the link or is outside the base.

        parent: the folder that contains `folder`, resolved.
        """
        if not folder.is_symlink():
            return True
        if parent.is_relative_to(folder.resolve()):
            self.problems.append(f"{folder} is a link to a folder that contains it. Remove the link.")
            return False
        return self._leads_inside(folder)

    def _leads_inside(self, link: Path) -> bool:
        try:
            target = link.resolve(strict=True)
        except FileNotFoundError:
            self.problems.append(f"{link} is a link that leads to nothing. Remove it.")
            return False
        except (OSError, RuntimeError):
            self.problems.append(f"{link} is a link that leads back to itself. Remove it.")
            return False
        if not target.is_relative_to(self.inside):
            self.problems.append(
                f"{link} is a link that leads out of {self.base}, to {target}. Replace the link with a copy, or name "
                "the target in another pattern."
            )
            return False
        return True


def _missing(path: Path) -> str:
    there = path
    while not there.is_dir() and there != there.parent:
        path, there = there, there.parent
    names = sorted(one.name for one in there.iterdir())
    hint = did_you_mean(path.name, names) or f" {listing(there, names)}"
    return f"{path}: there is no such file or folder.{hint}"


def _nothing(pattern: str) -> str:
    parts = PurePosixPath(pattern).parts
    base = Path(*parts[: next(at for at, part in enumerate(parts) if set(part) & set("*?["))])
    inside = [path for path in sorted(base.iterdir()) if not path.name.startswith(".")]
    if "{" in pattern:
        hint = " Braces are not wildcards here: give a list of patterns, files='[a/*.txt,a/*.md]'."
    elif inside and all(path.is_dir() for path in inside):
        hint = f" {base} contains only folders: files='{base}/**/*' finds the files in them."
    else:
        hint = f" {listing(base, [path.name for path in inside])}"
    return f"files: no file matches {pattern}.{hint}"
