"""The command line `harness COMMAND [key=value ...]`: every error becomes one message and an exit code.

Exit codes: 0 success; 1 a failed run; 2 bad input or config; 3 retrieval has regressed, and 4 the queries cannot tell
whether it has (only `check` and `watch`); 130 Ctrl-C; 143 SIGTERM.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness import interruption
from harness.config.command_list import COMMANDS, GROUPS

if TYPE_CHECKING:  # at run time, the import would load numpy and slow down --help
    from harness.config.composing import Request

TITLE = "harness COMMAND [key=value ...]: which retriever is really better on your own corpus?"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command, and end the process with its exit code."""
    gc.set_threshold(50_000, 10, 100)  # imports make little garbage, and collecting it would take half a second
    gc.freeze()
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in ("-sc", "--shell-completion", "--shell_completion"):
        sys.exit(_complete(words))
    if words[:1] == ["help"] and words[1:]:
        words = [*words[1:], "--help"]
    if not words:
        sys.exit(_next_steps())
    if words[0] in ("-h", "--help", "help"):
        sys.exit(_say(_overview()))
    if words[0] == "--version":
        import importlib.metadata

        sys.exit(_say(importlib.metadata.version("retrieval-harness")))
    command = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in COMMANDS), None)
    if command is None:
        _print_error(_no_command(words))
        sys.exit(2)
    interruption.listen()
    code = call(command, words[len(command.split()) :])
    interruption.stop_listening()
    gc.freeze()  # skips the garbage collection at exit, which would take half a second
    sys.exit(code)


def _say(text: str) -> int:
    """Print a text. Return 0, or 1 if the reader has closed the output."""
    try:
        print(text, flush=True)  # noqa: T201
    except BrokenPipeError:
        _drop_output()
        return 1
    return 0


def _no_command(words: Sequence[str]) -> str:
    from harness.config.messages import misplaced
    from harness.errors import did_you_mean

    if right := misplaced(words, COMMANDS):
        return f"The command comes first: {right}"
    near = did_you_mean(words[0], COMMANDS)
    return f"There is no command {words[0]!r}.{near} Commands: {', '.join(COMMANDS)}."


def call(command: str, words: Sequence[str]) -> int:
    """Run one command with its overrides and flags. Return the exit code."""
    try:
        from harness import children

        children.protect()
        if {"-h", "--help"} & {*words}:
            from harness.config.help import help_page

            given = [word for word in words if word not in ("-h", "--help")]
            print(help_page(command, given), flush=True)  # noqa: T201
        else:
            from harness.config.composing import Request
            from harness.config.messages import check_words
            from harness.progress import stage

            check_words(command, words, COMMANDS)
            with stage(f"harness {command}"):
                _run(Request.of(command, words))
        sys.stdout.flush()
        return 0
    except SystemExit as end:  # raised by argparse, and by Hydra's own --help and --cfg
        return end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        _print_error("Interrupted.")
        return interruption.exit_code() or 130
    except BrokenPipeError:
        _drop_output()  # the reader has closed our output
        return 1
    except Exception as error:
        return _failed(error, command, words)


def _failed(error: Exception, command: str, words: Sequence[str]) -> int:
    import traceback

    from harness.config.messages import explain, failure

    if code := interruption.exit_code():  # a library has turned the interruption into its own error
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
        _drop_output()  # otherwise the interpreter would try to write the output again when it exits
    return 1


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(request: Request) -> None:
    from harness.config import composing, launching

    command = COMMANDS[request.command]
    with composing.hydras_state():
        if request.flags.show:
            print(composing.shown_config(request), end="")  # noqa: T201
        elif not command.composed:
            command.load()(request).present()
        elif request.flags.multirun:
            launching.multirun(request)
        else:
            document, invocation = composing.compose_request(request)
            launching.log_as_configured()
            command.load()(command.config.of(document), invocation).present(document["format"])


def _complete(words: Sequence[str]) -> int:
    from harness.config import help

    what, _, shell = (words[1] if words[1:] else "").partition("=")
    if what == "install" and shell in help.SCRIPTS:
        return _say(help.SCRIPTS[shell])
    if what == "query":
        return _say(" ".join(help.candidates(os.environ.get("COMP_LINE", ""))))
    _print_error(f"Write `harness -sc install=SHELL`, where SHELL is one of {', '.join(help.SCRIPTS)}.")
    return 2


def _next_steps() -> int:
    """Print what to do next in the working folder. Return the exit code."""
    import textwrap

    from harness.config.text import runnable
    from harness.errors import BadInput
    from harness.reports.next_steps import next_here

    try:
        said, commands = next_here()
    except (BadInput, OSError) as error:
        _print_error(str(error))
        return 2
    lines = [TITLE, "", *textwrap.wrap(said, 100)]
    for line in commands:
        about = next(one.about for name, one in COMMANDS.items() if f"{line} ".startswith(f"harness {name} "))
        lines += [f"  {line}", f"      {about}"]
    return _say(runnable("\n".join([*lines, "", "`harness --help` lists all commands."])))


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [TITLE]
    for heading, commands in GROUPS.items():
        lines += ["", heading]
        for name, command in commands.items():
            lines += [
                f"  {name:<{width}}  {command.about}",
                f"  {'':<{width}}    harness {name} {command.example}".rstrip(),
            ]
    lines += [
        "",
        "harness, without a command, says what to do next in this folder.",
        "harness COMMAND --help shows a command's keys and choices; --cfg job shows its config; -m runs a grid.",
        'Tab completion: eval "$(harness -sc install=bash)"',
    ]
    return "\n".join(lines)


def _print_error(message: str) -> None:
    from harness.config.text import printable, runnable
    from retrievers.redaction import redacted

    print(printable(redacted(runnable(message))), file=sys.stderr)  # noqa: T201
