"""`harness COMMAND [key=value ...]`: the commands, and for each error one message and an exit code.

0: done. 1: a run failed. 2: bad input or config, Hydra's own config errors included. 130: Ctrl-C. 143: SIGTERM.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness import interruption

if TYPE_CHECKING:  # numpy is imported with any of the project's modules, which takes most of the time of --help
    from harness.config.hydra_app import Function


@dataclass(frozen=True)
class Command:
    function: str  # module:function, imported when the command is called
    does: str
    example: str


COMMANDS = {
    "init": Command(
        "harness.commands.init:init",
        "write harness.yaml: what all commands in this folder share",
        "harness init dataset=contest dataset.path=data experiment_name=first",
    ),
    "run": Command(
        "harness.commands.run:run",
        "run one experiment: retrieve, gate, score, log",
        "harness run dataset=contest dataset.path=data gate=score gate.threshold=5",
    ),
    "sweep": Command(
        "harness.commands.sweep.command:refuse_other_sweepers",
        "run a grid or a search; resumable, each retrieval computed once",
        "harness sweep retriever=bm25,hybrid_lexical 'top_k=range(1,4)'",
    ),
    "prepare": Command(
        "harness.commands.prepare:prepare",
        "turn text files into documents: extract, cut into chunks, find near-duplicates",
        "harness prepare files='corpus/**/*' output=docs chunk.size=400 chunk.overlap=80",
    ),
    "score": Command(
        "harness.commands.score:score_file",
        "score a predictions file made by another tool",
        "harness score predictions=submission.csv dataset=contest dataset.qrels=qrels.jsonl",
    ),
    "search": Command(
        "harness.commands.search:search",
        "search for one query: top documents, the gate's signal and decision",
        "harness search query='달은 왜 모양이 변해?'",
    ),
    "runs": Command(
        "harness.commands.runs:runs",
        "list the runs of an experiment, the best first; the experiments; a sweep's trials",
        "harness runs experiment_name=retrieval top=5",
    ),
    "compare": Command(
        "harness.commands.compare.command:compare",
        "tell which of two or more runs is better, by how much, and how sure the queries are",
        "harness compare experiment_name=retrieval top=3",
    ),
    "board": Command(
        "harness.commands.board:board",
        "write one page of all runs: which to take and why, query by query",
        "harness board experiment_name=retrieval output=board.html",
    ),
    "advise": Command(
        "harness.commands.advise:advise_run",
        "tell what to try next: what it can bring at most, what it costs, and the command",
        "harness advise experiment_name=retrieval",
    ),
    "power": Command(
        "harness.commands.power:power",
        "tell how many labelled queries it takes to tell two runs apart",
        "harness power 'runs=[3f2a91bc,b07c44d2]'",
    ),
    "export": Command(
        "harness.commands.export.command:export",
        "write the best run of an experiment as a validated submission",
        "harness export metric=modified_map@3",
    ),
    "export record": Command(
        "harness.commands.export.history:record",
        "record the leaderboard score of a submission",
        "harness export record submission=best.csv public=0.81",
    ),
    "export history": Command(
        "harness.commands.export.history:history",
        "list all submissions, local scores beside the leaderboard's",
        "harness export history",
    ),
    "reproduce": Command(
        "harness.commands.reproduce.command:reproduce",
        "repeat a logged run and prove that it predicts the same",
        "harness reproduce experiment_name=retrieval",
    ),
    "testset draft": Command(
        "harness.commands.testset.draft:draft",
        "let a language model draft a test set from documents: queries, answers, evidence",
        "harness testset draft testset=ts documents=docs model=gpt-4o-mini limit=5 dry_run=true",
    ),
    "testset pool": Command(
        "harness.commands.testset.pool:pool",
        "collect the documents worth judging: the first of several runs, and a sample of the rest",
        "harness testset pool testset=ts experiment_name=first top=5 pool.depth=10 pool.sample=5",
    ),
    "testset judge": Command(
        "harness.commands.testset.judge:judge",
        "let a language model grade the pooled pairs of a test set, with hidden controls",
        "harness testset judge testset=ts model=gpt-4o limit=20 dry_run=true",
    ),
    "testset review": Command(
        "harness.commands.testset.review:review",
        "let people judge what was pooled, blind, on a page of this machine",
        "harness testset review testset=ts reviewer=kim",
    ),
    "testset audit": Command(
        "harness.commands.testset.audit:audit",
        "tell how far the model that judged agrees with people, and people with each other",
        "harness testset audit testset=ts",
    ),
    "testset freeze": Command(
        "harness.commands.testset.freeze:freeze",
        "resolve all judgements, and write labels that do not change any more",
        "harness testset freeze testset=ts version=1",
    ),
    "ui": Command("harness.commands.ui:ui", "browse the runs in MLflow", "harness ui port=5000"),
    "doctor": Command(
        "harness.commands.doctor.command:doctor", "check the set-up, with a remedy for each problem", "harness doctor"
    ),
    "doctor cache": Command(
        "harness.commands.doctor.command:cache",
        "list and prune what the cache keeps",
        "harness doctor cache prune.unused_days=30",
    ),
    "doctor sync": Command(
        "harness.commands.doctor.sync:sync",
        "send the runs that their tracking server was not there to take",
        "harness doctor sync",
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """The `harness` command; ends the process with its exit code."""
    gc.set_threshold(50_000)  # imports make many objects and little garbage; searching it takes half a second
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in ("-sc", "--shell-completion", "--shell_completion"):
        sys.exit(_complete(words))
    if words[:1] == ["help"] and words[1:]:
        words = [*words[1:], "--help"]
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview())  # noqa: T201
        sys.exit(0)
    if words[0] == "--version":
        import importlib.metadata

        print(importlib.metadata.version("retrieval-harness"))  # noqa: T201
        sys.exit(0)
    command = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in COMMANDS), None)
    if command is None:
        _print_error(_no_command(words))
        sys.exit(2)
    interruption.listen()
    code = call(command, words[len(command.split()) :])
    interruption.stop_listening()
    gc.freeze()  # the interpreter skips its last collection, which takes as long and frees nothing of use
    sys.exit(code)


def _no_command(words: Sequence[str]) -> str:
    from harness.config.hints import misplaced
    from retrievers.base import did_you_mean

    if right := misplaced(words, COMMANDS):
        return f"The command comes first: {right}"
    near = did_you_mean(words[0], COMMANDS)
    return f"There is no command {words[0]!r}.{near} Commands: {', '.join(COMMANDS)}."


def call(command: str, words: Sequence[str]) -> int:
    """Run one command with its overrides and flags; the exit code."""
    try:
        from harness import children

        children.protect()
        from harness.config.hints import check_words
        from harness.config.hydra_app import run_app
        from harness.progress import stage

        if {"-h", "--help"} & {*words}:
            _print_help(command, words)
        else:
            if words[:1] != ["-sc"]:
                check_words(command, words, COMMANDS)
            with stage(f"harness {command}"):
                run_app(command, words, lambda: _function(command))
        sys.stdout.flush()
        return 0
    except SystemExit as end:  # argparse and Hydra's own --help, --cfg
        return end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        _print_error("Interrupted.")
        return interruption.exit_code() or 130
    except BrokenPipeError:
        _drop_output()  # the reader of our output has closed it
        return 1
    except Exception as error:
        return _failed(error, command, words)


def _failed(error: Exception, command: str, words: Sequence[str]) -> int:
    """Print one message about an error; the exit code."""
    from harness.config.messages import explain, failure

    if code := interruption.exit_code():  # a library has turned the interruption into an error of its own
        _print_error("Interrupted.")
        return code
    debug = os.environ.get("HYDRA_FULL_ERROR") == "1"
    if debug:
        _print_error(traceback.format_exc().rstrip())
    if message := explain(error, command, words):
        _print_error(message)
        return 2
    if not (message := failure(error)):
        if not debug:
            _print_error(traceback.format_exc().rstrip())
        message = f"{type(error).__name__}: {error}"
    _print_error(f"harness {command} failed: {message}")
    if isinstance(error, OSError) and error.filename is None:
        _drop_output()  # it may be the output that cannot be written: the interpreter would try once more
    return 1


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_help(command: str, words: Sequence[str]) -> None:
    from harness.config.help import page

    given = [word for word in words if word not in ("-h", "--help")]
    print(page(command, given, COMMANDS[command].example), flush=True)  # noqa: T201


def _function(command: str) -> Function:
    module, _, name = COMMANDS[command].function.partition(":")
    function: Function = getattr(importlib.import_module(module), name)
    return function


def _complete(words: Sequence[str]) -> int:
    """Tab completion: commands first, then Hydra's own completion of the command's config."""
    if words[1:] and not words[1].startswith("query"):
        return call("run", words)  # install or uninstall, the same for every command
    line = os.environ.get("COMP_LINE", "")
    typed = line.split()
    if len(typed) > 2 or (len(typed) == 2 and line.endswith(" ")):
        command = " ".join(typed[1:3]) if " ".join(typed[1:3]) in COMMANDS else typed[1]
        if command == typed[1] and (len(typed) == 2 or (len(typed) == 3 and not line.endswith(" "))):
            begun = f"{typed[1]} {''.join(typed[2:])}"
            print(" ".join(name.split()[1] for name in COMMANDS if name.startswith(begun)))  # noqa: T201
        os.environ["COMP_LINE"] = line.replace(f" {command}", "", 1)
        return call(command, words) if command in COMMANDS else 0
    start = typed[1] if len(typed) == 2 else ""
    print(" ".join(command for command in COMMANDS if command.startswith(start)))  # noqa: T201
    return 0


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = ["harness COMMAND [key=value ...]: which retriever is really better on your own corpus?", ""]
    for name, command in COMMANDS.items():
        lines += [f"  {name:<{width}}  {command.does}", f"  {'':<{width}}    {command.example}"]
    lines += [
        "",
        "harness COMMAND --help shows its keys and choices, --cfg job its whole config, -m runs a grid.",
        'Tab completion: eval "$(harness -sc install=bash)"',
    ]
    return "\n".join(lines)


def _print_error(message: str) -> None:
    from harness.config.program import runnable
    from retrievers.redaction import redacted

    print(redacted(runnable(message)), file=sys.stderr)  # noqa: T201
