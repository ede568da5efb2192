"""The sweeper of `harness sweep`, in the namespace package `hydra_plugins`, where Hydra looks for sweepers.

`harness.config.hydra_app` puts the folder above on the import path. Workers receive
`harness.commands.sweep.trials.Jobs`, not this class.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf


class PlannedSweeper(Sweeper):
    """Plans the trials before Hydra's launcher runs them.

    params: key -> its values, as named sweeps set them; overrides on the command line take precedence.
    trials_per_job: at most; None: no limit with Hydra's basic launcher; with others 25 in a grid, 1 in a search.
    """

    def __init__(self, params: dict[str, Any] | None = None, trials_per_job: int | None = None) -> None:
        self.params, self.trials_per_job = params or {}, trials_per_job

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        self.master, self.context = config, hydra_context

    def sweep(self, arguments: list[str]) -> None:
        from harness.commands.sweep.command import sweep
        from harness.commands.sweep.definition import HydraLauncher
        from harness.commands.sweep.submitted import Submitted
        from harness.commands.sweep.trials import Jobs

        jobs = Jobs()
        loader: ConfigLoader = self.context.config_loader
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=self.context, task_function=jobs, config=self.master
        )
        kind = type(launcher).__name__
        submitted = Submitted(launcher) if kind in ("LocalLauncher", "SlurmLauncher") else None
        if kind == "RayLauncher":
            _isolate(launcher)
        parser = OverridesParser.create(config_loader=loader)
        sweep(
            HydraLauncher(
                overrides=[*(f"{key}={value}" for key, value in self.params.items()), *arguments],
                compose=lambda overrides: loader.load_sweep_config(self.master, overrides),
                is_group=lambda key: bool(loader.get_group_options(key, ObjectType.CONFIG)),
                parse=parser.parse_overrides,
                check=submitted.check if submitted else lambda: None,
                launch=submitted.launch if submitted else launcher.launch,
                jobs=jobs,
                serial=kind == "BasicLauncher",
                trials_per_job=self.trials_per_job,
                config_dir=_config_dir(self.master.hydra.runtime.config_sources),
            )
        )


def _isolate(launcher: Any) -> None:
    """Let the launcher start Ray so that its workers import nothing from the working folder."""
    from hydra_plugins.hydra_ray_launcher import _core

    from harness.cluster.ray_connection import isolated

    def start(init_cfg: DictConfig) -> None:
        if not _core.ray.is_initialized():
            settings: Any = OmegaConf.to_container(init_cfg, resolve=True)
            _core.ray.init(**settings, **isolated(_core.ray))

    _core.start_ray = start


def _config_dir(sources: Iterable[Any]) -> str | None:
    """The folder of `--config-dir` among the sources of a config; None without one."""
    for one in sources:
        if one.provider == "command-line":
            folder, here = Path(one.path.removeprefix("file://")), Path.cwd()
            return str(folder.relative_to(here) if folder.is_relative_to(here) else folder)
    return None
