"""Work in progress: claims in `<outputs>/.claims`, by which the next command ends what a process that died has left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.storage import locks
from harness.storage.locks import Claim
from harness.storage.typed import require_path

TAG = "harness.claim"  # of a run: the name of its claim


@dataclass(frozen=True)
class ProcessWork:
    """What a process must end.

    folder: where it writes; None for the tracking store's own folder. scratch: whether the folder is useless
    afterwards.
    experiment, store: of its run; None without one. The run has the claim's name as a tag.
    """

    folder: str | None = None
    scratch: bool = False
    experiment: str | None = None
    store: str | None = None

    def __post_init__(self) -> None:
        require_path(self.folder)


def claim_work(outputs: Path, work: ProcessWork) -> Claim[ProcessWork]:
    return locks.claim(outputs / ".claims", work)


def abandoned_work(outputs: Path) -> Iterator[Claim[ProcessWork]]:
    """Yield the claims of dead processes of this host, without `work` if its folder is outside `outputs`."""
    for found in locks.abandoned(outputs / ".claims", ProcessWork):
        folder = found.work.folder if found.work else None
        if folder is not None and outputs.resolve() not in Path(folder).resolve().parents:
            found.work = None
        yield found
