"""Hydra without its repetitions: it composes the same words once, of files that it reads once in a process."""

import copy
import functools
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import hydra.conf
import omegaconf.base
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import CachingConfigRepository, ConfigRepository
from hydra.core.object_type import ObjectType

from harness.config.components import conf_folder

PLAIN: dict[tuple[object, str], Callable] = {
    (owner, name): getattr(owner, name)
    for owner, name in (
        (ConfigLoaderImpl, "_load_configuration_impl"),
        (ConfigLoaderImpl, "_compose_config_from_defaults_list"),
        (ConfigLoaderImpl, "_embed_result_config"),
        (ConfigRepository, "load_config"),
        (CachingConfigRepository, "__init__"),
        (defaults_list, "_create_interpolation_map"),
        (omegaconf.base, "parse"),
    )
}


def shortcuts(patch):
    """Patch Hydra. Only what is shipped is kept; files of --config-dir may change."""
    shipped = str(conf_folder())
    quick = (
        _composing_once(shipped),
        _merging_once(shipped),
        staticmethod(_embed),
        _reading_once({shipped, hydra.conf.__name__, ""}),
        _share,
        _choices,
        functools.cache(omegaconf.base.parse),
    )
    for (owner, name), function in zip(PLAIN, quick, strict=True):
        patch.setattr(owner, name, function)


@contextmanager
def plainly(patch):
    """Hydra as it is, in a test."""
    with patch.context() as undone:
        for (owner, name), function in PLAIN.items():
            undone.setattr(owner, name, staticmethod(function) if function is _PLAIN_EMBED else function)
        yield


_PLAIN_EMBED = PLAIN[ConfigLoaderImpl, "_embed_result_config"]


def _composing_once(shipped):
    plain, kept = PLAIN[ConfigLoaderImpl, "_load_configuration_impl"], {}

    def load(self, config_name, overrides, *others, **named):
        if _folders(self) != [shipped] or any("searchpath" in word for word in overrides):
            return plain(self, config_name, overrides, *others, **named)
        key = config_name, *overrides, None, *others, *named.items()
        if key not in kept:
            kept[key] = plain(self, config_name, overrides, *others, **named)
        composed = copy.deepcopy(kept[key])
        composed.hydra.runtime.cwd = str(Path.cwd())
        return composed

    return load


def _merging_once(shipped):
    """The same choices are merged once; overrides of values change a copy."""
    plain, kept = PLAIN[ConfigLoaderImpl, "_compose_config_from_defaults_list"], {}

    def merge(self, defaults, repo):
        if _folders(repo) != [shipped]:
            return plain(self, defaults, repo)
        key = repr(defaults)
        if key not in kept:
            kept[key] = plain(self, defaults, repo)
        return copy.deepcopy(kept[key])

    return merge


def _folders(repo):
    return [source.path for source in repo.get_sources() if source.scheme() == "file"]


def _reading_once(shipped):
    plain, kept = PLAIN[ConfigRepository, "load_config"], {}

    def load(self, config_path):
        source = self._find_object_source(config_path, ObjectType.CONFIG)
        if source is None or source.path not in shipped:
            return plain(self, config_path)
        key = source.path, source.provider, config_path
        if key not in kept:
            kept[key] = plain(self, config_path)
        return kept[key]

    return load


def _embed(loaded, package):
    """A config that Hydra would merge, and so change, as it is: what was read is shared."""
    embedded = _PLAIN_EMBED(loaded, package)
    return copy.deepcopy(loaded) if embedded is loaded else embedded


def _share(self, delegate):
    """A repository whose sources are replaced, never changed, needs no deep copy."""
    self.delegate, self.cache = copy.copy(delegate), {}


def _choices(overrides, defaults, self_added):
    """What interpolations in a list of defaults refer to, where there are any."""
    plain = PLAIN[defaults_list, "_create_interpolation_map"]
    refers = any(not one.is_self() and one.is_interpolation() for one in defaults)
    return plain(overrides, defaults, self_added) if refers else None
