"""Hydra, wrapped: composes a command's config, keeps instantiation on the leash, and lets errors reach the caller."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config import plugins
from harness.config.check import Invocation, checked, primary, with_metrics
from harness.config.defaults import Setting, config_folders, defaults
from harness.config.folders import conf_folder
from harness.config.recipes import unfolded
from retrievers.base import BadInput

if TYPE_CHECKING:
    from argparse import Namespace

PLUGINS = str(Path(__file__).parents[1] / "commands" / "sweep" / "plugins")

# Keys whose value is always text: `experiment_name=2024` stays "2024".
TEXT_KEYS = re.compile(
    r"(experiment_name|run_name|predictions|references|submission|against|run|outputs|query|query\.file|store\.path|tracking\.uri"
    r"|output|(dataset\.)?chunk\.(separator|tokenizer|note)"
    r"|testset|documents|examples|prompts\.[^.]+"
    r"|(dataset|data)\.(path|documents|queries|qrels|corpus|qa|split)|model_name|retriever\.[^.]+\.(url|version|path|ids|scores))"
)

# Keys whose value may be a list of texts: of an id, 12345678 and 12e45678 are no numbers, and paths are in any script.
LISTS = ("runs", "files", "dataset.files", "allow")

Function = Callable[[dict[str, Any], Invocation], Any]


@dataclass(frozen=True)
class Request:
    """What Hydra is asked to compose for a command.

    options: its flags. before: the overrides of `harness.yaml` and of recipes. given: those of the words, as Hydra's
    lexer reads them. allowed: the modules that the words allow.
    """

    command: str
    options: list[str]
    before: list[str]
    given: list[str]
    allowed: tuple[str, ...] = ()

    @classmethod
    def of(cls, command: str, flags: Namespace, silent: bool = False) -> Request:
        """BadInput for bad defaults and recipes.

        flags: the parsed words of the command line. silent: whether not to say that `harness.yaml` counts.
        """
        from harness.config.leash import options_of

        plugins.permit(allowed := tuple(plugins.allowed_by(flags.overrides)))
        options = options_of(flags)
        alone = flags.shell_completion or command == "init"
        before = [] if alone else _defaults(command, [*options, *flags.overrides], silent)
        recipe, overrides = unfolded(primary(command), flags.overrides, config_folders(options))
        before += map(override_of, recipe)
        if flags.shell_completion:
            return cls(command, options, before, flags.overrides)
        multirun = command == "sweep" or flags.multirun
        return cls(command, options, before, [quoted(word, multirun) for word in overrides], allowed)

    def checked(self, composed: Any, job: Any) -> tuple[dict[str, Any], Invocation]:
        """The config as plain values, checked, and what it was made of. job: Hydra's own section."""
        from omegaconf import OmegaConf

        plain: Any = OmegaConf.to_container(composed, resolve=True)
        plugins.permit(self.allowed)  # this may be a worker
        config = checked(with_metrics(plain), primary(self.command))
        choices = chosen(config, job.runtime.choices)
        words: Any = OmegaConf.to_container(job.overrides.task, resolve=False)
        words, before = tuple(words[len(self.before) :]), tuple(self.before)
        folder = next(map(str, config_folders(self.options)), None)
        return config, Invocation(choices, words, before, folder)


def run_app(command: str, words: Sequence[str], function: Callable[[], Function]) -> None:
    """Compose the config of a command, check it, and call the command's function with it.

    words: overrides and Hydra's flags. function: imports the command when it is needed. Raises what the function or
    Hydra raises.
    """
    import hydra

    from harness.config.leash import parsed_flags

    flags = parsed_flags(words)
    request = Request.of(command, flags)
    failures: list[Exception] = []

    def task(composed: Any) -> Any:
        from hydra.core.hydra_config import HydraConfig

        try:
            return function()(*request.checked(composed, HydraConfig.get()))
        except Exception as error:
            if command == "sweep" or flags.multirun:
                raise
            failures.append(error)  # raised below: Hydra would print a line of its own first

    _patch_hydra()
    shows = flags.cfg or flags.hydra_help or flags.info or flags.shell_completion or flags.multirun
    added = ["--multirun"] if command == "sweep" and not shows else []
    sys.argv = ["harness", *added, *request.options, *request.before, *request.given]
    with _full_errors():
        hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name=primary(command))(task)()
    if failures:
        raise failures[0]


def compose(command: str, words: Sequence[str], silent: bool = False) -> tuple[dict[str, Any], Invocation]:
    """The checked config that a command line stands for, for a caller in Python.

    Unlike `run_app`, it leaves the process as it is: arguments, working folder, logging, and Hydra's own state, which
    the caller may use for other things. Threads compose one after another.

    words: overrides, and `--config-dir=FOLDER`. silent: whether not to say that `harness.yaml` counts. Raises BadInput
    and Hydra's errors.
    """
    from harness.config.composing import ONE, composed
    from harness.config.leash import parsed_flags

    for word in words:
        if word.startswith(("-", "hydra.", "hydra/")) and not word.startswith("--config-dir="):
            raise BadInput(f"{word} is for the command line. From Python, give KEY=VALUE and --config-dir=FOLDER only.")
    with ONE:
        _find_plugins()
        request = Request.of(command, parsed_flags(words), silent)
        overrides = [*request.before, *request.given]
        with composed(primary(command), overrides, config_folders(request.options)) as (config, section):
            return request.checked(config, section)


def chosen(config: Mapping[str, Any], choices: Mapping[str, Any]) -> dict[str, Any]:
    """Config group -> choice. Of several retrievers, as in `retriever=[bm25,file]`, their names: Hydra keeps none.

    config: the composed config. choices: as Hydra keeps them.
    """
    names = {"retriever": "+".join(config["retriever"])} if isinstance(config.get("retriever"), Mapping) else {}
    return names | {group: choice for group, choice in choices.items() if "/" not in group}


def _defaults(command: str, words: Sequence[str], silent: bool) -> list[str]:
    """The overrides that `harness.yaml` stands for; they come before those of the command line, which so win."""
    found = defaults(primary(command), words)
    if not silent and (note := found.note()):
        print(note, file=sys.stderr)  # noqa: T201
    return [override_of(one) for one in found.settings]


def override_of(one: Setting) -> str:
    """A setting as an override, never of several values."""
    if one.is_choice:
        return f"{one.key}={'null' if one.value is None else one.value}"
    text = TEXT_KEYS.fullmatch(one.key) and one.value is not None and not isinstance(one.value, list)
    return f"{one.key}={_literal(one.text if text else one.value)}"


def _literal(value: Any) -> str:
    """A plain value, or a list of them, as Hydra's lexer reads it."""
    if isinstance(value, list):
        return f"[{','.join(map(_literal, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _escaped(value) if isinstance(value, str) else repr(value)


@contextmanager
def _full_errors() -> Iterator[None]:
    """Let Hydra raise its errors, instead of printing them and exiting with 1."""
    before = os.environ.get("HYDRA_FULL_ERROR")
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["HYDRA_FULL_ERROR"]
        else:
            os.environ["HYDRA_FULL_ERROR"] = before


def _find_plugins() -> None:
    """Let Hydra, which looks once per process, find the sweeper of `harness sweep`."""
    if PLUGINS not in sys.path:
        sys.path.append(PLUGINS)


def _patch_hydra() -> None:
    """Patches of Hydra 1.3 internals, which `hydra-core<1.4` in pyproject.toml protects.

    Configs are loaded on the leash. And Hydra composes the whole config once only to read hydra.mode, which --multirun
    decides here: that takes a quarter of a second.
    """
    from hydra._internal import hydra

    from harness.config.leash import LeashedLoader

    _find_plugins()
    if hydra.ConfigLoaderImpl is LeashedLoader:
        return
    hydra.ConfigLoaderImpl = LeashedLoader  # type: ignore[misc]
    plain_mode = hydra.Hydra.get_mode

    def mode(self: hydra.Hydra, config_name: str | None, overrides: list[str]) -> Any:
        given = any(word.startswith("hydra.mode=") for word in overrides)
        return plain_mode(self, config_name, overrides) if given else None

    hydra.Hydra.get_mode = mode  # type: ignore[method-assign]


def quoted(word: str, multirun: bool = False) -> str:
    """An override that Hydra's lexer accepts: values of text keys are always quoted, others where it would refuse them.

    In a multirun, commas separate values; each is quoted on its own.
    """
    key, equals, value = word.partition("=")
    if not equals or word.startswith("-"):
        return word
    bare = key.lstrip("+~")
    if TEXT_KEYS.fullmatch(bare):
        parts = value.split(",") if multirun else [value]
        return key + "=" + ",".join(_quote(part) for part in parts)
    if bare in LISTS and value[:1] == "[" and value[-1:] == "]":
        return f"{key}=[{','.join(_quote(part.strip()) for part in value[1:-1].split(','))}]"
    return word if _parses(word) else f"{key}={_quote(value)}"


def typed(word: str) -> str:
    """An override as one types it, without the quotation marks that `quoted` adds."""
    key, _, value = word.partition("=")
    if len(value) < 2 or value[0] != "'" or value[-1] != "'":
        return word
    plain = re.sub(r"\\+(?='|$)", lambda slashes: slashes.group()[: len(slashes.group()) // 2], value[1:-1])
    return f"{key}={plain}" if quoted(f"{key}={plain}") == word else word


def _quote(value: str) -> str:
    if value in ("", "null", "???") or (len(value) > 1 and value[0] == value[-1] and value[0] in "'\""):
        return value
    return _escaped(value)


def _escaped(value: str) -> str:
    """A text in quotation marks."""
    escaped = re.sub(r"\\+(?='|$)", lambda slashes: slashes.group() * 2, value)
    return "'" + escaped.replace("'", "\\'") + "'"


def _parses(word: str) -> bool:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        OverridesParser.create().parse_override(word)
    except (HydraException, ValueError):  # a ValueError: more digits than Python reads
        return False
    return True
