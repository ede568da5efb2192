"""Trials that have ended, as workers append them to a sweep's journal."""

from harness.sweeps.trials import EndedTrial, write_journal
from harness.tracking.file_hashes import FILE_HASHES
from harness.tracking.tracker import EndedRun, RunRecord


def ended(number, key, status="FINISHED", error="", **record):
    tags, end_tags = {"trial_key": key, "sweep.trial": str(number)}, {FILE_HASHES: "{}"}
    made = RunRecord("e", f"trial {number}", tags=tags, end_tags=end_tags, began=1000 + number, **record)
    return EndedTrial(number, EndedRun(f"{number:032x}", status, made), 0.5, error)


def append(context, one, files=("scores.csv",)):
    """Append a trial with small files. Return whether it was appended."""
    folder = context.folder / "trials" / f"{one.number}-x.unfinished"
    folder.mkdir(parents=True)
    for name in files:
        (folder / name).write_text(f"{name} of {one.number}\n", "utf-8")
    return write_journal(context, [(one, folder)])
