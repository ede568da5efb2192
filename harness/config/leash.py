"""Limit what flags, config files and overrides may decide about Hydra itself.

Hydra imports, opens and calls everything that is named in its section of a config: logging factories, launchers,
callbacks, packages of configs. So this section must stay as shipped, except for launcher, sweeper and verbosity.

Import this module inside functions. It imports Hydra at the top, since workers import `LeashedLoader` by name.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import hydra.conf
import omegaconf._utils
import yaml
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult
from hydra.types import RunMode
from omegaconf import DictConfig, Node, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from omegaconf.resolvers import oc

from harness.config import plugins, recipes, yaml_files
from harness.config.canonical import flatten, mappings_in
from harness.config.command_list import PRIMARY, base_class, config_class
from harness.config.manual import is_inner
from harness.config.places import conf_folder
from harness.config.schema import Key, check_value, schema_defaults
from harness.errors import BadInput

MOST = 1_000_000  # the maximum number of characters of a key's value once its references are resolved
REFERENCE = re.compile(r"\$\{([^${}:]+)\}")  # not `${resolver:...}`, which has a colon
COMPUTED = re.compile(r"\$\{[^${}:]*(\$\{[^{}]*\}[^${}:]*)+\}")


def check_size(document: Mapping[str, Any]) -> None:
    """Raise BadInput if the references `${...}` of a key would resolve to more than MOST characters."""
    values = dict(_values(document, ()))
    sizes: dict[tuple[str, ...], int] = {}

    def size(path: tuple[str, ...]) -> int:
        if path not in sizes:
            sizes[path] = 0  # a cycle adds nothing here: OmegaConf refuses it later
            value = values.get(path, "")
            if isinstance(value, list | Mapping):
                names = value if isinstance(value, Mapping) else range(len(value))
                sizes[path] = 1 + sum(size((*path, str(name))) for name in names)
            else:
                sizes[path] = 1 + len(value) + sum(size(_target(name, path)) for name in REFERENCE.findall(value))
        return sizes[path]

    for path, value in values.items():
        if isinstance(value, str) and COMPUTED.search(value):
            raise BadInput(f"{'.'.join(path)}: {value:.60}: a key's name must not contain a reference.")
        if size(path) > MOST:
            raise BadInput(
                f"{'.'.join(path)} would have {size(path):,} characters once its references are resolved. Use fewer."
            )


def _values(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    yield path, value if isinstance(value, Mapping | list) else str(value)
    for name, one in inner:
        yield from _values(one, (*path, str(name)))


def _target(name: str, path: tuple[str, ...]) -> tuple[str, ...]:
    bare = name.strip().lstrip(".")
    up = len(name.strip()) - len(bare)
    return (*(path[:-up] if up else ()), *re.findall(r"[^.\[\]]+", bare))


BASIC = "hydra._internal.core_plugins.basic"
PLUGINS = {
    "launcher": (
        f"{BASIC}_launcher.BasicLauncher",
        "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher",
        "hydra_plugins.hydra_ray_launcher.ray_launcher.RayLauncher",
        "hydra_plugins.hydra_submitit_launcher.submitit_launcher.LocalLauncher",
        "hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher",
    ),
    "sweeper": (f"{BASIC}_sweeper.BasicSweeper",),
}
ONE_PROCESS = "a job of a sweep is one process"
NUMBERS = {
    "launcher.n_jobs": Key(int, least=-1, most=1024),
    "launcher.nodes": Key(int, least=1, most=1, why=ONE_PROCESS),
    "launcher.tasks_per_node": Key(int, least=1, most=1, why=ONE_PROCESS),
    "launcher.timeout_min": Key(int, least=1),
    "launcher.cpus_per_task": Key(int | None, least=1),
    "launcher.mem_gb": Key(int | None, least=1),
    "launcher.array_parallelism": Key(int, least=1),
    "launcher.signal_delay_s": Key(int, least=0),
    "launcher.max_num_timeout": Key(int, least=0),
}
# Keys of Hydra's section. COMMAND_LINE: a command line may set these. FILES: a file in --config-dir may set these.
# FILLED_IN: Hydra sets these itself. FREE: the values of these may differ from the shipped ones.
COMMAND_LINE = ("hydra/launcher", "hydra.launcher", "hydra.sweeper", "hydra.verbose")
FILES = ("sweeper.params.", "launcher.n_jobs")
FILLED_IN = ("overrides.", "runtime.", "job.id", "job.num", "job.override_dirname", "job.config_name")
FREE = ("launcher", "sweeper", "verbose")


class Repository(ConfigRepository):
    """The sources of config files. Raises BadInput, with the file's name, for a file that is endless or not YAML."""

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        super().__init__(config_search_path)
        self._read: dict[tuple[str, ...], ConfigResult | None] = {}  # copying takes less time than parsing

    def __deepcopy__(self, _: Any) -> Repository:
        return copy.copy(self)  # Hydra copies the repository for each config, in case the config replaces the sources

    def load_config(self, config_path: str) -> ConfigResult | None:
        key = (config_path, *(source.path for source in self.sources))
        if key not in self._read:
            self._read[key] = self._parsed(config_path)
        return copy.deepcopy(self._read[key])

    def _parsed(self, config_path: str) -> ConfigResult | None:
        source = self._find_object_source(config_path, ObjectType.CONFIG)
        place = Path(source.path if source else "", f"{config_path.removesuffix('.yaml')}.yaml")
        if place.is_file():  # otherwise, the config is in Hydra's package
            yaml_files.text_of(place)
        with yaml_files.refusing(place), _parsing_in_c():
            return super().load_config(config_path)


@contextmanager
def _replacing(module: Any, name: str, value: Any) -> Iterator[None]:
    plain = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, plain)


_whole_map = defaults_list._create_interpolation_map


def _map_if_needed(overrides: Any, defaults: list[Any], self_added: bool) -> DictConfig | None:
    """Return the choices that Hydra puts into a list of defaults, which take a fifth of the time; None without `${`."""
    return _whole_map(overrides, defaults, self_added) if any(one.is_interpolation() for one in defaults) else None


def _parsing_in_c() -> AbstractContextManager[None]:
    """Let OmegaConf parse YAML with libyaml, which is eight times faster."""
    fast = _loader_in_c()
    return _replacing(omegaconf._utils, "get_yaml_loader", lambda: fast)


@functools.cache
def _loader_in_c() -> Any:
    slow = omegaconf._utils.get_yaml_loader()
    if not yaml.__with_libyaml__:
        return slow

    class Loader(yaml.cyaml.CParser, slow):  # type: ignore[misc, valid-type]
        def __init__(self, stream: Any) -> None:
            yaml.cyaml.CParser.__init__(self, stream)
            yaml.constructor.SafeConstructor.__init__(self)
            yaml.resolver.Resolver.__init__(self)

    return Loader


class LeashedLoader(ConfigLoaderImpl):
    """Hydra's loader of configs. In any process, raises BadInput for a config that this module refuses."""

    def __init__(self, config_search_path: ConfigSearchPath) -> None:
        for folder in plugins.folders():
            config_search_path.prepend(plugins.PROVIDER, f"file://{folder}", SearchPathQuery(provider="schema"))
        self.config_search_path = config_search_path
        self.repository = Repository(config_search_path)

    def load_configuration(
        self,
        config_name: str | None,
        overrides: list[str],
        run_mode: RunMode,
        from_shell: bool = True,
        validate_sweep_overrides: bool = True,
    ) -> DictConfig:
        OmegaConf.register_new_resolver("oc.env", _environment, replace=True)
        self._name = config_name or "common"
        # Compose a sweep without keys inside groups: each trial later adds those that its choices have.
        whole_sweep = config_name == "sweep" and run_mode == RunMode.MULTIRUN
        inner = [one for one in overrides if whole_sweep and is_inner(one, self._is_group)]
        others = [one for one in overrides if one not in inner]
        try:
            with _replacing(defaults_list, "_create_interpolation_map", _map_if_needed):
                config = super().load_configuration(config_name, others, run_mode, from_shell, validate_sweep_overrides)
        except (ValueError, RecursionError, AssertionError) as error:  # for example, if a number has 5,000 digits
            if isinstance(error, BadInput | OmegaConfBaseException | HydraException):
                raise
            asserted = isinstance(error, AssertionError)  # Hydra checks the list `defaults` with an assert
            why = "an entry of a `defaults` list names no choice" if asserted else error
            raise BadInput(f"The config cannot be read: {why}.") from error
        plain: Any = OmegaConf.to_container(config, resolve=False)
        check_size(plain)
        _check_section(config.hydra, config_name)
        task = {*plain["hydra"]["overrides"]["task"], *inner}
        config.hydra.overrides.task = [one for one in overrides if one in task]
        return config

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        if master_config.hydra.job.config_name != "sweep":
            return super().load_sweep_config(master_config, sweep_overrides)
        OmegaConf.register_new_resolver("oc.env", _environment, replace=True)
        config = copy.deepcopy(master_config)  # ignore the overrides: jobs read their trials from the sweep's folder
        OmegaConf.set_readonly(config.hydra, False)
        return config

    def _is_group(self, name: str) -> bool:
        return bool(self.get_group_options(name, ObjectType.CONFIG))

    def _process_config_searchpath(self, config_name: str | None, parsed_overrides: list[Override], repo: Any) -> None:
        for override in parsed_overrides:  # check first: the base class imports packages in hydra.searchpath
            _check_override(override)
            _check_choice(override, repo)
        super()._process_config_searchpath(config_name, parsed_overrides, repo)

    def _load_single_config(self, default: Any, repo: Any) -> Any:
        loaded = super()._load_single_config(default, repo)
        if default.config_path in ("common", *PRIMARY):  # keys outside groups come from the schema
            cls = config_class(default.config_path)
            loaded = copy.copy(loaded)
            loaded.config = OmegaConf.merge(schema_defaults(cls, base_class(cls)), loaded.config)
        if loaded.provider in ("command-line", plugins.PROVIDER):  # files of --config-dir and of plug-ins
            content = OmegaConf.to_container(loaded.config, resolve=False)
            file = f"{loaded.path.removeprefix('file://')}/{default.config_path}.yaml"
            _check_file(content, file)
            recipes.name_senders(content, file)
            if default.config_path.startswith(f"{recipes.GROUP}/"):
                loaded = copy.copy(loaded)
                loaded.config = OmegaConf.create(recipes.own(content, self._name))
        return loaded


def _check_override(override: Override) -> None:
    key = override.key_or_group
    if key == "hydra.searchpath":
        raise BadInput("hydra.searchpath is refused. Add a folder of configs with --config-dir=FOLDER.")
    if key == "hydra" or (key.startswith(("hydra.", "hydra/")) and not key.startswith(COMMAND_LINE)):
        raise BadInput(
            f"{key} is refused: the harness sets up Hydra itself. The command line may set {', '.join(COMMAND_LINE)}."
        )


def _check_choice(override: Override, repo: Any) -> None:
    group, value = override.key_or_group, override.value()
    if not group:
        raise BadInput(f"{override.input_line!r} has no key. Overrides are key=value.")
    names = isinstance(value, list) and all(isinstance(one, str) for one in value)
    if override.is_delete() or override.is_sweep_override() or names or isinstance(value, str | dict):
        return
    if repo.group_exists(group):
        known = repo.get_group_options(group, ObjectType.CONFIG)
        raise BadInput(f"{group}={override.get_value_string()}: choose one by its name: {', '.join(known)}.")


def _check_file(content: Any, file: str) -> None:
    section = content.get("hydra", {}) if isinstance(content, Mapping) else {}
    refused = (
        [name for name in flatten(section) if not name.startswith(FILES)] if isinstance(section, Mapping) else [""]
    )
    if refused:
        key = ".".join(["hydra", *filter(None, refused[:1])])
        allowed = ", ".join(f"hydra.{name.rstrip('.')}" for name in FILES)
        raise BadInput(
            f"{file} sets {key}: remove this key. In Hydra's section, a config file may set only {allowed}. The "
            "command line may also set a launcher."
        )


def _check_section(section: DictConfig, config_name: str | None) -> None:
    for name, targets in PLUGINS.items():
        _check_plugin(section, name, targets)
    content: Any = OmegaConf.to_container(section, resolve=False)
    here, shipped = (
        {(name, repr(value)) for name, value in flatten(whole).items() if value not in (None, [], "???")}
        for whole in ({key: value for key, value in content.items() if key not in FREE}, _shipped(config_name))
    )
    for key, _ in [*sorted(here - shipped), *sorted(shipped - here)]:
        if not key.startswith(FILLED_IN):
            raise BadInput(
                f"hydra.{key} must stay as shipped, since the harness sets up Hydra itself. "
                f"Only {', '.join(f'hydra.{one}' for one in FREE)} may be set."
            )
    check_value(content["verbose"], Key(bool | str | list[str]), "hydra.verbose")


def _check_plugin(section: DictConfig, name: str, targets: Sequence[str]) -> None:
    content: Any = section[name]
    if not isinstance(content, DictConfig) or content.get("_target_") not in targets:
        known = ", ".join(target.rpartition(".")[2] for target in targets)
        raise BadInput(f"hydra.{name} must be one of {known}. Choose one, as in hydra/{name}=basic.")
    content = OmegaConf.to_container(content, resolve=True)
    for where, node in mappings_in(content, f"hydra.{name}"):
        for key in node:
            if str(key).startswith("_") and (where, key) != (f"hydra.{name}", "_target_"):
                raise BadInput(f"{where}.{key} is refused: remove it. Only hydra.{name}._target_ may begin with _.")
    for key, bounds in NUMBERS.items():
        group, _, argument = key.partition(".")
        if group == name and argument in content:
            check_value(content[argument], bounds, f"hydra.{key}")


@functools.cache
def _shipped(config_name: str | None) -> dict[str, Any]:
    stock = Path(next(iter(hydra.conf.__path__))) / "hydra"
    with _parsing_in_c():
        sections = [OmegaConf.structured(hydra.conf.HydraConf), OmegaConf.load(stock / "output" / "default.yaml")]
        for group in ("help", "hydra_help", "hydra_logging", "job_logging"):
            sections.append(OmegaConf.create({group: OmegaConf.load(stock / group / "default.yaml")}))
    for name in ("common", config_name) if config_name else ():
        shipped = yaml.load((conf_folder() / f"{name}.yaml").read_bytes(), _loader_in_c())  # noqa: S506 (a safe loader)
        sections.append(OmegaConf.create(shipped.get("hydra", {})))
    content: Any = OmegaConf.to_container(OmegaConf.merge(*sections), resolve=False)
    return {key: value for key, value in content.items() if key not in (*FREE, "defaults")}


def _environment(name: str, default: Any = oc._DEFAULT_MARKER_, *, _node_: Node) -> str | None:
    """Resolve `${oc.env:NAME}`, but only for variables without secrets, since the value may be logged."""
    key = str(_node_._get_full_key(None))
    if not str(name).startswith("HARNESS_") and (name, key) != ("MLFLOW_TRACKING_URI", "tracking.uri"):
        raise BadInput(
            f"{key} reads the environment variable {name}. Configs are logged, so they may read only variables whose "
            "names begin with HARNESS_."
        )
    return oc.env(name, default)
