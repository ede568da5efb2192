"""Compose a checked config from a command line with Hydra, for the shell, for Python and for sweeps."""

from __future__ import annotations

import argparse
import copy
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from harness.config import canonical, plugins
from harness.config.check import Invocation, check_values, primary, with_metrics
from harness.config.defaults import Defaults, command_defaults
from harness.config.manual import is_inner
from harness.config.overrides import lookup, override_of, quoted_override, unquoted
from harness.config.places import conf_folder
from harness.config.recipes import unfolded
from harness.errors import BadInput

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override
    from omegaconf import DictConfig

    from harness.config.leash import LeashedLoader

MOST = 1000  # the maximum number of sets of choices whose configs a composer keeps
ONE = threading.RLock()  # the lock of Hydra's state, which belongs to the whole process


@dataclass(frozen=True)
class Flags:
    """The flags of a command line. show: the part of the config to print. package: print only this key."""

    show: str | None
    resolve: bool
    package: str | None
    multirun: bool
    config_dir: Path | None
    overrides: tuple[str, ...]

    @classmethod
    def of(cls, words: Sequence[str]) -> Flags:
        """Read the words after a command. Raise BadInput for unknown flags, and for flags that exclude each other."""
        parser = _Parser(prog="harness", add_help=False)
        parser.add_argument("--cfg", "-c", choices=("job", "hydra", "all"))
        parser.add_argument("--resolve", action="store_true")
        parser.add_argument("--package", "-p")
        parser.add_argument("--config-dir", "-cd", type=Path)
        parser.add_argument("--multirun", "-m", action="store_true")
        parser.add_argument("overrides", nargs="*")
        found = parser.parse_intermixed_args(list(words))
        if (found.resolve or found.package) and not found.cfg:
            raise BadInput("--resolve and --package work only with a flag that shows the config: add --cfg job.")
        if found.cfg and found.multirun:
            raise BadInput("--cfg and --multirun exclude each other: leave out one.")
        return cls(found.cfg, found.resolve, found.package, found.multirun, found.config_dir, tuple(found.overrides))

    @property
    def folders(self) -> list[Path]:
        return [self.config_dir] if self.config_dir else []


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message[:1].upper()}{message[1:]}. See `harness COMMAND --help`.")


@dataclass(frozen=True)
class Request:
    """A command and its quoted overrides. before: from harness.yaml and recipes. given: from the command line."""

    command: str
    flags: Flags
    before: tuple[str, ...]
    given: tuple[str, ...]
    allowed: tuple[str, ...] = ()

    @classmethod
    def of(cls, command: str, words: Sequence[str], silent: bool = False) -> Request:
        """Read a command line. Raise BadInput for bad flags, defaults and recipes. silent: print no notes."""
        flags, name = Flags.of(words), primary(command)
        plugins.permit(allowed := tuple(plugins.allowed_by(flags.overrides)))
        from_file = Defaults() if command == "init" else command_defaults(name, words)
        if not silent and (note := from_file.note()):
            print(note, file=sys.stderr)  # noqa: T201
        recipe, overrides = unfolded(name, flags.overrides, flags.folders)
        key_of = lookup(name, words)
        before = [override_of(one, key_of) for one in (*from_file.settings, *recipe)]
        multirun = command == "sweep" or flags.multirun
        return cls(
            command, flags, tuple(before), tuple(quoted_override(one, key_of, multirun) for one in overrides), allowed
        )

    @property
    def overrides(self) -> list[str]:
        return [*self.before, *self.given]

    def checked(self, plain: dict[str, Any], choices: Mapping[str, Any], given: Sequence[str]) -> Checked:
        """Return the checked config and its command line. given: overrides as entered; with `-m`, of one job."""
        plugins.permit(self.allowed)  # again, since `of` may have run in another process
        config = check_values(with_metrics(plain), primary(self.command))
        words, before = tuple(map(unquoted, given)), tuple(map(unquoted, self.before))
        folder = str(self.flags.config_dir) if self.flags.config_dir else None
        return config, Invocation(dict(choices), words, before, folder)


Checked = tuple[dict[str, Any], Invocation]


def compose(command: str, words: Sequence[str], silent: bool = False) -> Checked:
    """Return the checked config of a command line. Raise BadInput and Hydra's errors.

    The process's arguments, working folder, logging and Hydra state stay unchanged. Only one thread composes at a time.
    words: overrides and `--config-dir=FOLDER`. silent: print no note that harness.yaml is used.
    """
    check_flags(words)
    with hydras_state():
        return compose_request(Request.of(command, words, silent))


def check_flags(words: Sequence[str], refused: tuple[str, ...] = ("-", "hydra.", "hydra/")) -> None:
    """Raise BadInput for words that are allowed only on the command line. refused: the beginnings of such words."""
    for word in words:
        if word.startswith(refused) and not word.startswith("--config-dir="):
            raise BadInput(f"{word} is for the command line. From Python, give only KEY=VALUE and --config-dir=FOLDER.")


def compose_request(request: Request) -> Checked:
    """Return the checked config of a request. Call it within `hydras_state`."""
    plain, choices = composer(primary(request.command), request.flags.folders)((), request.overrides)
    return request.checked(plain, choices, request.given)


def master(request: Request, multirun: bool = True) -> tuple[DictConfig, LeashedLoader]:
    """Return the whole config of a request, with the key `hydra`, and its loader. Call it within `hydras_state`.

    multirun: leave overrides with several values to Hydra's launchers.
    """
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    loader = _loader(request.flags.folders)
    mode = RunMode.MULTIRUN if multirun else RunMode.RUN
    whole = loader.load_configuration(primary(request.command), request.overrides, mode)
    HydraConfig.instance().set_config(whole)
    return whole, loader


def shared_by_trials(request: Request) -> tuple[DictConfig, LeashedLoader]:
    """Return (a sweep's whole config without the swept keys, a loader). Call it within `hydras_state`."""
    from hydra.core.hydra_config import HydraConfig

    parsed = [_parsed(one) for one in request.overrides]
    if swept := next((one for one in parsed if one.is_sweep_override() and one.is_hydra_override()), None):
        raise BadInput(f"{swept.input_line}: a key of Hydra itself cannot be swept. Give it one value.")
    fixed = [one.input_line or "" for one in parsed if not one.is_sweep_override()]
    whole = composer(primary(request.command), request.flags.folders).whole(fixed)
    HydraConfig.instance().set_config(whole)
    return whole, _loader(request.flags.folders)


@contextmanager
def hydras_state() -> Iterator[None]:
    """Let the block use the process-wide state of Hydra and OmegaConf. Then restore the caller's state."""
    from hydra import version
    from hydra.core.hydra_config import HydraConfig
    from hydra.core.utils import setup_globals
    from omegaconf.basecontainer import BaseContainer

    with ONE:
        resolvers = dict(BaseContainer._resolvers)
        base, job = version.VersionBase.instance().version_base, HydraConfig.instance().cfg
        try:
            setup_globals()
            version.setbase("1.3")
            yield
        finally:
            BaseContainer._resolvers = resolvers
            version.VersionBase.instance().version_base = base
            HydraConfig.instance().cfg = job


def shown_config(request: Request) -> str:
    """Return the YAML that `--cfg` prints. Call it within `hydras_state`."""
    from omegaconf import OmegaConf

    whole, _ = master(request, multirun=request.command == "sweep")
    section, flags = whole.hydra, request.flags
    config = _without_hydra(whole)
    if flags.show != "job":
        config = OmegaConf.create({"hydra": section} | ({} if flags.show == "hydra" else dict(config.items())))
    if flags.package:
        config = OmegaConf.select(config, flags.package)
        if config is None:
            raise BadInput(f"--package {flags.package}: the config has no such key.")
    words = [*flags.overrides, *(f"--config-dir={folder}" for folder in flags.folders)]
    of_file = Defaults() if request.command == "init" else command_defaults(primary(request.command), words)
    origins = "".join(f"# from {one.where}: {one.key}={one.text}\n" for one in of_file.settings)
    return origins + OmegaConf.to_yaml(config, resolve=flags.resolve)


@dataclass
class Composed:
    """The config that Hydra composes for a set of choices.

    plain: the resolved config. choices: config group -> choice. keys: the dotted keys of all nodes.
    interpolations: the unresolved values with `${...}`. section: Hydra's own config, for `${hydra:...}`.
    with_values: overrides of values (not of choices) -> this config with these overrides.
    """

    config: DictConfig
    plain: dict[str, Any]
    choices: dict[str, Any]
    keys: set[str]
    interpolations: list[str]
    section: Any = None
    with_values: dict[tuple[str, ...], Composed] = field(default_factory=dict)

    @classmethod
    def of(cls, whole: DictConfig) -> Composed:
        from hydra.core.hydra_config import HydraConfig

        HydraConfig.instance().set_config(whole)
        made = cls._resolved(_without_hydra(whole), {})
        # With several retrievers, as in `retriever=[bm25,file]`, Hydra records no choice for them. Use their names.
        several = (
            {"retriever": "+".join(made.plain["retriever"])} if isinstance(made.plain.get("retriever"), dict) else {}
        )
        chosen = {group: choice for group, choice in whole.hydra.runtime.choices.items() if "/" not in group}
        return replace(made, choices=several | chosen, section=HydraConfig.instance().cfg)

    @classmethod
    def _resolved(cls, config: DictConfig, choices: dict[str, Any]) -> Composed:
        from omegaconf import OmegaConf

        unresolved: Any = OmegaConf.to_container(config, resolve=False)
        texts = [value for value in canonical.flatten(unresolved).values() if isinstance(value, str) and "${" in value]
        plain: Any = OmegaConf.to_container(config, resolve=True)
        return cls(
            config,
            with_metrics(plain),
            choices,
            {f"{where}.{key}"[1:] for where, group in canonical.mappings_in(unresolved, "") for key in group},
            texts,
        )

    def changed(self, values: Mapping[str, Any]) -> Composed:
        """Return the config with other values for existing keys. Values that refer to these keys change as well."""
        config = copy.deepcopy(self.config)
        for key, value in values.items():  # first, since `_resolved` resolves references to these keys
            _set_in(config, key, value)
        return replace(self._resolved(config, self.choices), section=self.section)


class Composer:
    """Composes a config with Hydra once for each set of choices. Applies overrides of values to copies of it."""

    def __init__(self, load: Callable[[list[str]], DictConfig], is_group: Callable[[str], bool]) -> None:
        self.is_group = functools.cache(is_group)
        self._composed = functools.lru_cache(MOST)(lambda words, variables: Composed.of(load(list(words))))

    def __call__(self, fixed: Sequence[str], overrides: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the resolved config and the choices. fixed: overrides that several calls share, applied first."""
        from hydra.core.hydra_config import HydraConfig

        hydras = [one for one in (*fixed, *overrides) if not self._sets_value(_parsed(one))]
        composed = self._shared(hydras, [one for one in fixed if one not in hydras])
        HydraConfig.instance().cfg = composed.section
        values = self._values([one for one in overrides if one not in hydras], composed)
        if any("${" + key.partition(".")[0] in text for key in values for text in composed.interpolations):
            composed, values = composed.changed(values), {}
        config = _copied(composed.plain)
        for key, value in values.items():
            _set_in(config, key, value)
        return config, dict(composed.choices)

    def whole(self, overrides: Sequence[str]) -> DictConfig:
        """Return the whole config, with the key `hydra`. Leave out overrides that do not fit the choices."""
        from omegaconf import open_dict

        kept = self.applicable(overrides)
        hydras = [one for one in kept if not self._sets_value(_parsed(one))]
        composed = self._hydras(hydras)
        whole = copy.deepcopy(composed.config)
        with open_dict(whole):
            whole["hydra"] = copy.deepcopy(composed.section.hydra)
        for key, value in self._values([one for one in kept if one not in hydras], composed).items():
            _set_in(whole, key, value)
        return whole

    def applicable(self, overrides: Sequence[str]) -> list[str]:
        """Return the overrides that fit the choices: gate.threshold fits gate=score, but not gate=none."""
        inner = {one for one in overrides if is_inner(one, self.is_group)}
        if not inner:
            return list(overrides)
        keys = self._hydras([one for one in overrides if one not in inner and not self._sets_value(_parsed(one))]).keys
        return [one for one in overrides if one not in inner or _key(one) in keys]

    def partial(self, fixed: Sequence[str], swept: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
        """Return key -> the swept choices (group=choice) that have this key. Leave out keys that all choices have.

        swept: key -> its overrides, one for each value. Raise Hydra's exceptions, also for a key that no choice has.
        """
        first = {key: overrides[0] for key, overrides in swept.items()}
        inner = [_key(one) for one in (*fixed, *first.values()) if is_inner(one, self.is_group)]
        known = set(self._keys_of([*fixed, *first.values()]))
        found: dict[str, list[str]] = {}
        for group in filter(self.is_group, swept if inner else ()):
            having = {one: self._keys_of([*fixed, *(first | {group: one}).values()]) for one in swept[group]}
            known.update(*having.values())
            for key in inner:
                choices = [one for one, keys in having.items() if key in keys]
                if 0 < len(choices) < len(having):
                    found.setdefault(key, []).extend(choices)
        if unknown := next((key for key in inner if key not in known), None):
            raise _unknown(unknown)
        return found

    def _keys_of(self, overrides: Sequence[str]) -> list[str]:
        return [_key(one) for one in self.applicable(overrides)]

    def _hydras(self, overrides: Sequence[str]) -> Composed:
        return self._composed(tuple(overrides), _environment())

    def _shared(self, hydras: Sequence[str], others: Sequence[str]) -> Composed:
        composed = self._hydras(hydras)
        if not others:
            return composed
        if (words := tuple(others)) not in composed.with_values:
            composed.with_values[words] = composed.changed(self._values(others, composed))
        return composed.with_values[words]

    def _values(self, overrides: Sequence[str], composed: Composed) -> dict[str, Any]:
        values = {_key(one): _parsed(one).value() for one in overrides}
        if unknown := next((key for key in values if key not in composed.keys), None):
            raise _unknown(unknown)
        return values

    def _sets_value(self, override: Override) -> bool:
        value, key = override.value(), override.key_or_group
        scalars = value if isinstance(value, list) else [value]
        plain = all(isinstance(one, bool | int | float | str | None) for one in scalars)
        plain = plain and not {"$", "\\"} & set(str(value))
        changes = override.type is not None and override.type.name == "CHANGE" and override.package is None
        return plain and changes and not key.startswith("hydra") and not self.is_group(key)


def composer(name: str, folders: Sequence[Path] = ()) -> Composer:
    """Return the composer of a primary config. It is cached unless folders are given: their files may change."""
    return _composer(name, folders) if folders else _kept(name, tuple(plugins.folders()))


def _composer(name: str, folders: Sequence[Path]) -> Composer:
    from hydra.core.object_type import ObjectType
    from hydra.types import RunMode

    loader = _loader(folders)

    def load(overrides: list[str]) -> DictConfig:
        return loader.load_configuration(name, overrides, RunMode.RUN)

    return Composer(load, lambda key: bool(loader.get_group_options(key, ObjectType.CONFIG)))


@functools.cache
def _kept(name: str, of_plugins: tuple[Path, ...]) -> Composer:
    return _composer(name, ())


def _loader(folders: Sequence[Path]) -> LeashedLoader:
    from hydra._internal.utils import create_config_search_path
    from hydra.core.config_search_path import SearchPathQuery
    from hydra.errors import SearchPathException

    from harness.config.leash import LeashedLoader

    path = create_config_search_path(str(conf_folder()))
    for folder in map(Path.absolute, folders):
        if not folder.is_dir():
            raise SearchPathException(f"Additional config directory '{folder}' not found")
        path.prepend("command-line", f"file://{folder}", SearchPathQuery(provider="schema"))
    return LeashedLoader(path)


def _without_hydra(whole: DictConfig) -> DictConfig:
    from omegaconf import OmegaConf

    return OmegaConf.masked_copy(whole, [str(key) for key in whole if key != "hydra"])


def _unknown(key: str) -> Exception:
    from hydra.errors import ConfigCompositionException

    return ConfigCompositionException(f"Could not override '{key}'.")


def _copied(plain: Any) -> Any:
    """Return a deep copy of dicts, lists and plain values, made several times as fast as by `copy.deepcopy`."""
    if isinstance(plain, dict):
        return {key: _copied(value) for key, value in plain.items()}
    return [*map(_copied, plain)] if isinstance(plain, list) else plain


def _set_in(config: Any, key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        config = config[parent]
    config[last] = value


def _key(override: str) -> str:
    return override.partition("=")[0]


def _environment() -> tuple[tuple[str, str], ...]:
    return tuple(one for one in os.environ.items() if one[0].startswith("HARNESS_") or one[0] == "MLFLOW_TRACKING_URI")


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> Override:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    return OverridesParser.create().parse_override(text)
