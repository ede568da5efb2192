"""Launch many jobs from one command line with Hydra's launchers, in this process or in others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.config.command_list import COMMANDS
from harness.config.composing import Composed, Request, master
from harness.errors import BadInput

if TYPE_CHECKING:
    from hydra.plugins.launcher import Launcher
    from hydra.types import HydraContext
    from omegaconf import DictConfig

    from harness.config.leash import LeashedLoader


@dataclass(frozen=True)
class CommandJob:
    """Runs the command of a request, with the config of one job."""

    request: Request

    def __call__(self, composed: DictConfig) -> Any:
        from hydra.core.hydra_config import HydraConfig
        from omegaconf import OmegaConf

        section = HydraConfig.get()
        made = Composed.of(OmegaConf.merge({"hydra": section}, composed))  # type: ignore[arg-type]
        words: Any = OmegaConf.to_container(section.overrides.task, resolve=False)
        document, invocation = self.request.checked(made.plain, made.choices, words[len(self.request.before) :])
        command = COMMANDS[self.request.command]
        command.load()(command.config.of(document), invocation).present(document["format"])


def multirun(request: Request) -> None:
    """Run a command once for each combination of values (`-m`). Call it within `hydras_state`."""
    from hydra.core.plugins import Plugins

    whole, loader = master(request)
    sweeper = Plugins.instance().instantiate_sweeper(
        hydra_context=_context(loader, whole), task_function=CommandJob(request), config=whole
    )
    sweeper.sweep(arguments=list(whole.hydra.overrides.task))  # launchers add Hydra's own overrides


def launcher_for(whole: DictConfig, loader: LeashedLoader, task: Callable[[DictConfig], Any]) -> Launcher:
    from hydra.core.plugins import Plugins

    found = Plugins.instance().instantiate_launcher(
        hydra_context=_context(loader, whole), task_function=task, config=whole
    )
    if type(found).__name__ == "RayLauncher":
        _isolate()
    return found


def log_as_configured() -> None:
    """Set up logging from Hydra's section of the composed config."""
    from hydra.core.hydra_config import HydraConfig
    from hydra.core.utils import configure_log
    from omegaconf import OmegaConf

    section = OmegaConf.create({"hydra": OmegaConf.to_container(HydraConfig.get(), resolve=False)}).hydra
    section.runtime.output_dir = section.runtime.cwd  # Hydra's file handler needs a folder
    configure_log(section.job_logging, section.verbose)


def _context(loader: LeashedLoader, whole: DictConfig) -> HydraContext:
    from hydra._internal.callbacks import Callbacks
    from hydra.types import HydraContext

    if whole.hydra.callbacks:
        raise BadInput("hydra.callbacks is refused: the harness sets up Hydra itself.")
    return HydraContext(config_loader=loader, callbacks=Callbacks())


def _isolate() -> None:
    """Make Hydra's Ray launcher start workers that import nothing from the working folder."""
    from hydra_plugins.hydra_ray_launcher import _core
    from omegaconf import OmegaConf

    from harness.cluster.ray_connection import isolated

    def start(init_cfg: DictConfig) -> None:
        if not _core.ray.is_initialized():
            settings: Any = OmegaConf.to_container(init_cfg, resolve=True)
            _core.ray.init(**settings, **isolated(_core.ray))

    _core.start_ray = start
