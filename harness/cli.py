"""`harness VERB [key=value ...]`: verbs to Hydra apps, and what goes wrong to one message and an exit code.

0 = done, 1 = a run failed, 2 = bad input or config (Hydra's own config errors included).
"""

from __future__ import annotations

import gc
import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.config.check import primary
from harness.config.messages import explain
from retrievers.base import did_you_mean


@dataclass(frozen=True)
class Verb:
    function: str  # module:function, imported when it is called
    does: str
    example: str


# Hydra's flags that say what to do, so that --multirun is not to be added.
SHOWS = {"-c", "--cfg", "-h", "--help", "--hydra-help", "-i", "--info", "-sc", "--shell-completion", "-m", "--multirun"}
PLUGINS = str(Path(__file__).parent / "commands" / "sweep" / "plugins")

VERBS = {
    "run": Verb(
        "harness.commands.run:run",
        "one experiment: retrieve, gate, score, log",
        "harness run dataset=contest dataset.path=data gate=score gate.threshold=5",
    ),
    "sweep": Verb(
        "harness.commands.sweep.command:unplanned",
        "many runs over a grid or a search, resumable, each retrieval computed once",
        "harness sweep retriever=bm25,hybrid_lexical 'top_k=range(1,4)'",
    ),
    "score": Verb(
        "harness.commands.score:score_file",
        "score a predictions file that was made elsewhere",
        "harness score predictions=submission.csv dataset=contest dataset.qrels=qrels.jsonl",
    ),
    "search": Verb(
        "harness.commands.search:search",
        "one query: top documents, the gate's signal and decision",
        "harness search query='달은 왜 모양이 변해?'",
    ),
    "compare": Verb(
        "harness.commands.compare.command:compare",
        "which of two or more runs is better, by how much, and whether the queries can tell",
        "harness compare experiment_name=retrieval top=3",
    ),
    "export": Verb(
        "harness.commands.export.command:export",
        "the best run of an experiment as a validated submission",
        "harness export metric=modified_map@3 submission=best.csv",
    ),
    "export record": Verb(
        "harness.commands.export.history:record",
        "what the leaderboard answered to a submission",
        "harness export record submission=best.csv public=0.81",
    ),
    "export history": Verb(
        "harness.commands.export.history:history",
        "all submissions, local scores beside the leaderboard's",
        "harness export history",
    ),
    "reproduce": Verb(
        "harness.commands.reproduce.command:reproduce",
        "run a logged run again and prove that it predicts the same",
        "harness reproduce experiment_name=retrieval",
    ),
    "ui": Verb("harness.commands.ui:ui", "browse the runs in MLflow", "harness ui port=5000"),
    "doctor": Verb("harness.commands.doctor.command:doctor", "check the set-up and say what to do", "harness doctor"),
    "doctor cache": Verb(
        "harness.commands.doctor.command:cache",
        "list and prune what the cache keeps",
        "harness doctor cache prune.unused_days=30",
    ),
    "doctor sync": Verb(
        "harness.commands.doctor.sync:sync",
        "send the runs that their tracking server was not there to take",
        "harness doctor sync",
    ),
}

# Keys whose value is text whatever it looks like: `experiment_name=2024` stays "2024".
TEXT_KEYS = re.compile(
    r"(experiment_name|run_name|predictions|references|submission|against|run|outputs|query|query\.file|store\.path|tracking\.uri"
    r"|(dataset|data)\.(path|documents|queries|qrels|corpus|qa|split)|model_name)"
)


def main(arguments: Sequence[str] | None = None) -> None:
    """The `harness` command; ends the process with its exit code."""
    gc.set_threshold(50_000)  # imports make many objects and little garbage: looking for it takes half a second
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in ("-sc", "--shell-completion", "--shell_completion"):
        sys.exit(_complete(words))
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview())  # noqa: T201
        sys.exit(0)
    if words[0] == "--version":
        import importlib.metadata

        print(importlib.metadata.version("retrieval-harness"))  # noqa: T201
        sys.exit(0)
    verb = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in VERBS), None)
    if verb is None:
        _say(f"There is no verb {words[0]!r}.{did_you_mean(words[0], VERBS)} Verbs: {', '.join(VERBS)}.")
        sys.exit(2)
    code = call(verb, words[len(verb.split()) :])
    gc.freeze()  # and most of another one at the end, when the whole process goes anyway
    sys.exit(code)


def call(verb: str, words: Sequence[str]) -> int:
    """Run one verb with its overrides and flags; the exit code."""
    for word in words:
        if word.startswith("="):
            _say(f"{word!r} has no key. Overrides are key=value; see `harness {verb} --help`.")
            return 2
    debug = os.environ.get("HYDRA_FULL_ERROR") == "1"
    try:
        _hydra(verb, words)
        return 0
    except SystemExit as end:  # argparse and Hydra's own --help, --cfg
        return end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        _say("Interrupted.")
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone: nobody to tell
        return 1
    except Exception as error:
        if debug:
            traceback.print_exc()
        message = explain(error, verb, words)
        if message is None:
            if not debug:
                traceback.print_exc()
            _say(f"harness {verb} failed: {type(error).__name__}: {error}")
            return 1
        _say(message)
        return 2


def _hydra(verb: str, words: Sequence[str]) -> None:
    """Compose the verb's config with Hydra and hand it, checked, to the verb's function."""
    import hydra

    from harness.config import check, components

    module, _, name = VERBS[verb].function.partition(":")
    multirun = verb == "sweep" or any(word in ("-m", "--multirun") for word in words)
    failed: list[Exception] = []

    def task(composed: Any) -> Any:
        from hydra.core.hydra_config import HydraConfig
        from omegaconf import OmegaConf

        try:
            plain: Any = OmegaConf.to_container(composed, resolve=True)
            check.check(plain, primary(verb))
            function: Callable[..., Any] = getattr(importlib.import_module(module), name)
            job = HydraConfig.get()
            choices = {group: choice for group, choice in job.runtime.choices.items() if "/" not in group}
            return function(plain, check.Invocation(choices, tuple(job.overrides.task)))
        except Exception as error:
            if multirun:
                raise
            failed.append(error)  # raised below: Hydra would print a line of its own first

    _leash_hydra()
    if PLUGINS not in sys.path:
        sys.path.append(PLUGINS)  # where Hydra, which looks once a process, finds the sweeper of `harness sweep`
    completing = words[:1] == ["-sc"]
    shows = any(word.partition("=")[0] in SHOWS for word in words)
    flags = ["--multirun"] if verb == "sweep" and not shows else []
    sys.argv = ["harness", *flags, *(word if completing else quoted(word, multirun) for word in words)]
    before = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"  # raise to us instead of printing and exiting with 1
    try:
        hydra.main(version_base="1.3", config_path=str(components.conf_folder()), config_name=primary(verb))(task)()
    finally:
        if before is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = before
    if failed:
        raise failed[0]


def _leash_hydra() -> None:
    """Hydra instantiates its callbacks from the config: keep those on the leash too.

    And it composes the whole config once only to read hydra.mode, which --multirun says as well: a quarter of a second.
    """
    from hydra._internal.callbacks import Callbacks
    from hydra._internal.hydra import Hydra
    from omegaconf import OmegaConf

    plain_init = Callbacks.__init__
    if getattr(plain_init, "leashed", False):
        return

    def init(self: Callbacks, config: Any = None) -> None:
        from harness.config.components import target_class

        for name, node in (OmegaConf.select(config, "hydra.callbacks") or {}).items() if config is not None else ():
            target_class(node, f"hydra.callbacks.{name}")
        plain_init(self, config)

    plain_mode = Hydra.get_mode

    def mode(self: Hydra, config_name: str | None, overrides: list[str]) -> Any:
        said = any(word.startswith("hydra.mode=") for word in overrides)
        return plain_mode(self, config_name, overrides) if said else None

    Hydra.get_mode = mode  # type: ignore[method-assign]
    init.leashed = True  # type: ignore[attr-defined]
    Callbacks.__init__ = init  # type: ignore[method-assign]


def quoted(word: str, multirun: bool = False) -> str:
    """An override as Hydra's lexer takes it: text keys are always quoted, other values where it would refuse them.

    In a multirun commas separate values; each is quoted on its own.
    """
    key, equals, value = word.partition("=")
    if not equals or word.startswith("-"):
        return word
    bare = key.lstrip("+~")
    if TEXT_KEYS.fullmatch(bare):
        parts = value.split(",") if multirun else [value]
        return key + "=" + ",".join(_quote(part) for part in parts)
    return word if _parses(word) else f"{key}={_quote(value)}"


def _quote(value: str) -> str:
    if value in ("", "null", "???") or (len(value) > 1 and value[0] == value[-1] and value[0] in "'\""):
        return value
    escaped = re.sub(r"\\+(?='|$)", lambda slashes: slashes.group() * 2, value)
    return "'" + escaped.replace("'", "\\'") + "'"


def _parses(word: str) -> bool:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        OverridesParser.create().parse_override(word)
    except HydraException:
        return False
    return True


def _complete(words: Sequence[str]) -> int:
    """Tab completion: verbs first, then Hydra's own completion of the verb's config."""
    if words[1:] and not words[1].startswith("query"):
        return call("run", words)  # install or uninstall, the same for every verb
    line = os.environ.get("COMP_LINE", "")
    typed = line.split()
    if len(typed) > 2 or (len(typed) == 2 and line.endswith(" ")):
        verb = " ".join(typed[1:3]) if " ".join(typed[1:3]) in VERBS else typed[1]
        os.environ["COMP_LINE"] = line.replace(f" {verb}", "", 1)
        return call(verb, words) if verb in VERBS else 0
    start = typed[1] if len(typed) == 2 else ""
    print(" ".join(verb for verb in VERBS if verb.startswith(start)))  # noqa: T201
    return 0


def _overview() -> str:
    width = max(map(len, VERBS))
    lines = ["harness VERB [key=value ...]: which retriever is really better on your own corpus?", ""]
    for name, verb in VERBS.items():
        lines += [f"  {name:<{width}}  {verb.does}", f"  {'':<{width}}    {verb.example}"]
    lines += [
        "",
        "harness VERB --help shows a verb's keys and choices, --cfg job its whole config, -m runs a grid.",
        'Tab completion: eval "$(harness -sc install=bash)"',
    ]
    return "\n".join(lines)


def _say(message: str) -> None:
    print(message, file=sys.stderr)  # noqa: T201
