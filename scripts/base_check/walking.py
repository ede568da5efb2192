"""One document, command by command, and the hints that its commands print."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import stand_ins
from measuring import ROOT, SAMPLE

from base_check import calling
from base_check.calling import Done
from base_check.pages import Page
from base_check.shown import PLACEHOLDER, Hint, Shown, commands, hints

REFUSED = "! "  # before a command that must be refused
RUN = re.compile(r"\bRun ([0-9a-f]{8})\b")
ONCE = ("ui", "sweep")  # verbs of hints that take long
IN_A_SHELL = 3  # commands, and as many hints, of the README that a true shell runs


@dataclass(frozen=True)
class Outcome:
    """The end of a command. what: "document" or "hint". said: its errors, if it failed."""

    place: str
    what: str
    command: str
    result: str
    passed: bool = True
    said: str = ""


@dataclass
class Walk:
    """The state of a walk through one chain of a document. chain: its first section; "" for the beginning."""

    page: Page
    chain: str
    scratch: Path
    folder: Path
    environment: dict[str, str]
    addresses: Mapping[str, str]
    runs: list[str] = field(default_factory=list)  # ids, the latest last
    called: Counter[str] = field(default_factory=Counter)  # commands of the document, and hints


def walk(page: Page, chain: str, scratch: Path, addresses: Mapping[str, str]) -> list[Outcome]:
    shown = list(_shown(page))
    headings = list(dict.fromkeys(one.section for one in shown))
    if unknown := [heading for heading in page.chains if heading not in headings]:
        return [Outcome(page.name, "chain", one, "no section with commands has this heading", False) for one in unknown]
    number = ["", *page.chains].index(chain)
    folder = scratch / f"{page.name.replace('/', '-')}-{number}" / "work"
    _set_up(page, folder)
    walk = Walk(page, chain, scratch, folder, _environment(page.activated, scratch) | page.environment, addresses)
    for command in page.chains[chain] if chain else page.before:
        done = calling.call(command.replace(".venv/bin", str(calling.BIN)), folder, walk.environment)
        if done.code:
            return [_failed(page.name, "set-up", command, done)]
        walk.runs += RUN.findall(done.text)
    own, here = [], ""
    for one in shown:
        here = one.section if one.section in page.chains else here
        own += [one] if here == chain else []
    outcomes = [outcome for one in own for outcome in _command(walk, one)]
    exceptions = [*page.left_out, *page.lacks, *page.codes, *page.fills] if not chain else []
    stale = [text for text in exceptions if not any(text in one.text for one in shown)]
    return outcomes + [Outcome(page.name, "exception", text, "no command has it any more", False) for text in stale]


def _shown(page: Page) -> Iterator[Shown]:
    if not page.commands:
        yield from commands(ROOT / page.name, page.name)
    for number, text in enumerate(page.commands, 1):
        yield Shown(page.name, number, text.removeprefix(REFUSED), refused=text.startswith(REFUSED))


def _set_up(page: Page, folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, source in page.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (SAMPLE / source).is_dir() else shutil.copyfile)(SAMPLE / source, path)
    for name, text in page.texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


def _environment(activated: bool, scratch: Path) -> dict[str, str]:
    kept = ("HOME", "LANG", "LC_ALL", "OMP_NUM_THREADS", "TMPDIR")
    folders = [one for one in os.environ["PATH"].split(os.pathsep) if not (Path(one) / "harness").exists()]
    path = os.pathsep.join([str(calling.BIN)] * activated + folders)
    cache = {"HARNESS_CACHE": str(scratch / "cache")} if activated else {}
    return {name: os.environ[name] for name in kept if name in os.environ} | {"PATH": path} | cache


def _command(walk: Walk, shown: Shown) -> Iterator[Outcome]:
    page = walk.page
    if reason := next((why for text, why in page.left_out.items() if text in shown.text), None):
        yield Outcome(shown.place, "document", shown.text, f"left out: {reason}")
        return
    command = _filled(walk, shown.text)
    if command.startswith("export "):
        walk.environment.update([shlex.split(command)[1].split("=", 1)])
        return
    done = _called(walk, command, "document")
    walk.runs += [one for one in RUN.findall(done.text) if one not in walk.runs]
    extra = next((one for text, one in page.lacks.items() if text in shown.text), None)
    if extra:
        if done.code == 2 and extra in done.err.strip().splitlines()[-1] and "Traceback" not in done.err:
            yield Outcome(shown.place, "document", command, f"says that it needs {extra}")
        else:
            yield _failed(shown.place, "document", command, done, f"should say that it needs {extra}")
    elif done.code != next((code for text, code in page.codes.items() if text in shown.text), 2 * shown.refused):
        yield _failed(shown.place, "document", command, done)
    else:
        result = "is refused" if shown.refused else f"ends with exit code {done.code}" if done.code else "runs"
        yield Outcome(shown.place, "document", command, result)
    yield from _in_a_copy(walk, shown, command, done)


def _called(walk: Walk, command: str, what: str) -> Done:
    words = command.split("#")[0].split()
    if {"draft", "judge"} & {*words} or any(word.startswith("llm.model=") for word in words):
        command = re.sub(r"\s+#.*| llm\.base_url=\S+", "", command) + f" llm.base_url={walk.addresses['chat']}"
    shell = walk.page.name == "README.md" and not walk.chain and walk.called[what] < IN_A_SHELL
    if what == "document":
        command = re.sub(r"^harness\b", str(calling.BIN / "harness"), command)
    walk.called[what] += 1
    done = calling.call(command, walk.folder, walk.environment, shell=shell)
    print(f"{walk.page.name}: {what}: {command}  ({done.seconds:.1f} s)", file=sys.stderr)
    if "via=xlsx" in command and (written := re.search(r"output=(\S+)", command)) and not done.code:
        stand_ins.fill_in(walk.folder / written[1])
    return done


def _in_a_copy(walk: Walk, shown: Shown, command: str, done: Done) -> Iterator[Outcome]:
    new = [hint for hint in hints(done.text, command) if _claimed(walk, hint)]
    if not new:
        return
    kept, before = walk.folder.with_name("kept"), list(walk.runs)
    walk.folder.rename(kept)
    shutil.copytree(kept, walk.folder, symlinks=True)
    for hint in new:
        yield _hint(walk, shown.place, hint)
    shutil.rmtree(walk.folder)
    kept.rename(walk.folder)
    walk.runs[:] = before


def _claimed(walk: Walk, hint: Hint) -> bool:
    """Return whether a hint is the first of its kind in this document, or in all documents if its verb takes long."""
    folder = walk.scratch / "claims" / ("all" if hint.words[0] in ONCE else walk.page.name.replace("/", "-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        (folder / hashlib.sha256(hint.kind.encode()).hexdigest()).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _hint(walk: Walk, place: str, hint: Hint) -> Outcome:
    command = _filled(walk, hint.text)
    if PLACEHOLDER.search(command):
        return Outcome(place, "hint", command, "has a placeholder")
    if not calling.program(shlex.split(command)[0], walk.folder, walk.environment):
        return Outcome(place, "hint", command, "not found in this shell", False)
    planned = hint.words[0] == "sweep" and "sweep=auto" in hint.words
    done = _called(walk, f"{command} dry_run=true" if planned else command, "hint")
    walk.runs += RUN.findall(done.text)
    if done.code:
        return _failed(place, "hint", command, done)
    return Outcome(place, "hint", command, "plans" if planned else "runs")


def _filled(walk: Walk, text: str) -> str:
    for part, instead in walk.page.fills.items():
        for name, address in walk.addresses.items():
            instead = instead.replace(f"{{{name}}}", address)
        text = text.replace(part, instead)
    text = re.sub(r"(?<!\S)\.\.\.(?!\S) *", "", text).strip()
    text = text.replace("reviewer=NAME", "reviewer=kim").replace("model=NAME", "model=any")
    if walk.runs:
        text = re.sub(r"\bID\b(?=[\]'\s]|$)", walk.runs[-1], text)
        if len(walk.runs) > 1:
            text = text.replace("[A,B]", f"[{walk.runs[-2]},{walk.runs[-1]}]")
    if found := re.search(r"outputs/submissions/submission-\S+", text):
        [latest, *_] = [*walk.folder.glob("outputs/submissions/submission-*-????????.*l"), walk.folder / found[0]]
        text = text.replace(found[0], str(latest.relative_to(walk.folder)))
    if found := re.search(r"(?:outputs/runs/DATE|\bRUN)/([\w.]+)", text):
        latest = sorted((walk.folder / "outputs" / "runs").glob(f"*/{found[1]}"))
        text = text.replace(found[0], str(latest[-1].relative_to(walk.folder)) if latest else found[0])
    return text


def _failed(place: str, what: str, command: str, done: Done, why: str = "") -> Outcome:
    said = "\n".join(f"    {line}" for line in done.err.strip().splitlines()[-6:])
    return Outcome(place, what, command, why or f"exit code {done.code}", False, said)
