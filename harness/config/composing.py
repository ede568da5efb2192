"""Composing a command's config inside somebody else's process, such as a notebook that uses Hydra itself."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.config.folders import conf_folder

if TYPE_CHECKING:
    from hydra.core.config_search_path import ConfigSearchPath

ONE = threading.RLock()  # Hydra's state belongs to the whole process


@contextmanager
def composed(name: str, overrides: Sequence[str], folders: Sequence[Path]) -> Iterator[tuple[Any, Any]]:
    """Provide the config of a command as Hydra's main function would, and Hydra's own section of it.

    Values refer to others and to Hydra's section only within the block: after it, the resolvers, the version and the
    config that Hydra and OmegaConf keep for the whole process are the caller's again. Threads wait for each other.

    name: of the primary config. folders: further folders of configs. Raises BadInput and Hydra's errors.
    """
    from hydra.core.hydra_config import HydraConfig
    from hydra.types import RunMode

    from harness.config.leash import LeashedLoader

    with ONE, _own_state():
        loader = LeashedLoader(_search_path(folders))
        whole = loader.load_configuration(name, list(overrides), RunMode.RUN)
        HydraConfig.instance().set_config(whole)
        yield _without_hydra(whole), HydraConfig.get()


@contextmanager
def _own_state() -> Iterator[None]:
    from hydra import version
    from hydra.core.hydra_config import HydraConfig
    from hydra.core.utils import setup_globals
    from omegaconf.basecontainer import BaseContainer

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


def _search_path(folders: Sequence[Path]) -> ConfigSearchPath:
    """Where configs are: ours, then further folders, as Hydra's main function has it."""
    from hydra._internal.utils import create_config_search_path
    from hydra.core.config_search_path import SearchPathQuery
    from hydra.errors import SearchPathException

    path = create_config_search_path(str(conf_folder()))
    for folder in map(Path.absolute, folders):
        if not folder.is_dir():
            raise SearchPathException(f"Additional config directory '{folder}' not found")
        path.prepend("command-line", f"file://{folder}", SearchPathQuery(provider="schema"))
    return path


def _without_hydra(whole: Any) -> Any:
    from omegaconf import open_dict, read_write

    config = copy.deepcopy(whole)
    with read_write(config), open_dict(config):
        del config["hydra"]
    return config
