"""Hydra, wrapped: composes a command's config, keeps instantiation on the leash, and lets errors reach the caller."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.config.check import Invocation, check, primary
from harness.config.components import conf_folder
from harness.config.defaults import Setting, config_folders, defaults
from harness.config.recipes import unfolded
from retrievers.base import BadInput

PLUGINS = str(Path(__file__).parents[1] / "commands" / "sweep" / "plugins")

# Keys whose value is always text: `experiment_name=2024` stays "2024".
TEXT_KEYS = re.compile(
    r"(experiment_name|run_name|predictions|references|submission|against|run|outputs|query|query\.file|store\.path|tracking\.uri"
    r"|(dataset|data)\.(path|documents|queries|qrels|corpus|qa|split)|model_name)"
)

Function = Callable[[dict[str, Any], Invocation], Any]


def run_app(command: str, words: Sequence[str], function: Callable[[], Function]) -> None:
    """Compose the config of a command, check it, and call the command's function with it.

    words: overrides and Hydra's flags. function: imports the command when it is needed. Raises what the function or
    Hydra raises.
    """
    import hydra

    from harness.config.leash import options_of, parsed_flags

    flags = parsed_flags(words)
    multirun = command == "sweep" or flags.multirun
    failures: list[Exception] = []
    alone = flags.shell_completion or command == "init"
    before = [] if alone else _defaults(command, [*options_of(flags), *flags.overrides])
    recipe, overrides = unfolded(primary(command), flags.overrides, config_folders(options_of(flags)))
    before += map(override_of, recipe)

    def task(composed: Any) -> Any:
        from hydra.core.hydra_config import HydraConfig
        from omegaconf import OmegaConf

        try:
            config: Any = OmegaConf.to_container(composed, resolve=True)
            check(config, primary(command))
            job = HydraConfig.get()
            choices = {group: choice for group, choice in job.runtime.choices.items() if "/" not in group}
            words: Any = OmegaConf.to_container(job.overrides.task, resolve=False)
            return function()(config, Invocation(choices, tuple(words[len(before) :]), tuple(before)))
        except Exception as error:
            if multirun:
                raise
            failures.append(error)  # raised below: Hydra would print a line of its own first

    _patch_hydra()
    if PLUGINS not in sys.path:
        sys.path.append(PLUGINS)  # where Hydra, which looks once per process, finds the sweeper of `harness sweep`
    shows = flags.cfg or flags.hydra_help or flags.info or flags.shell_completion or flags.multirun
    added = ["--multirun"] if command == "sweep" and not shows else []
    given = flags.overrides if flags.shell_completion else [quoted(word, multirun) for word in overrides]
    sys.argv = ["harness", *added, *options_of(flags), *before, *given]
    with _full_errors():
        hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name=primary(command))(task)()
    if failures:
        raise failures[0]


def _defaults(command: str, words: Sequence[str]) -> list[str]:
    """The overrides that `harness.yaml` stands for; they come before those of the command line, which so win."""
    found = defaults(primary(command), words)
    if note := found.note():
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


def _patch_hydra() -> None:
    """Patches of Hydra 1.3 internals, which `hydra-core<1.4` in pyproject.toml protects.

    Configs are loaded on the leash. A damaged config file is bad input. And Hydra composes the whole config once only
    to read hydra.mode, which --multirun decides here: that takes a quarter of a second.
    """
    from hydra._internal import hydra

    from harness.config.leash import LeashedLoader

    if hydra.ConfigLoaderImpl is LeashedLoader:
        return
    hydra.ConfigLoaderImpl = LeashedLoader  # type: ignore[misc]
    plain_mode = hydra.Hydra.get_mode

    def mode(self: hydra.Hydra, config_name: str | None, overrides: list[str]) -> Any:
        given = any(word.startswith("hydra.mode=") for word in overrides)
        return plain_mode(self, config_name, overrides) if given else None

    hydra.Hydra.get_mode = mode  # type: ignore[method-assign]
    _refuse_damaged_files()


def _refuse_damaged_files() -> None:
    """Have Hydra raise BadInput, with its name, for a config file that is no YAML."""
    from hydra._internal.config_repository import ConfigRepository
    from hydra.core.object_type import ObjectType
    from hydra.errors import HydraException
    from yaml import YAMLError

    plain_load = ConfigRepository.load_config

    def load(self: ConfigRepository, config_path: str) -> Any:
        try:
            return plain_load(self, config_path)
        except HydraException:
            raise
        except (YAMLError, OSError, ValueError, TypeError, RecursionError) as error:
            source, why = self._find_object_source(config_path, ObjectType.CONFIG), " ".join(str(error).split())
            place = Path(source.path if source else "", f"{config_path}.yaml")
            raise BadInput(f"{place} is not a config: {why:.300}. Correct the file.") from None

    ConfigRepository.load_config = load  # type: ignore[method-assign]


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
    if bare == "runs" and value[:1] == "[" and value[-1:] == "]":  # of an id, 12345678 and 12e45678 are no numbers
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
