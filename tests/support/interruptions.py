"""Ctrl-C in the middle of a sweep."""

from contextlib import contextmanager

from harness.experiment import steps


@contextmanager
def interrupted(monkeypatch, number):
    """Ctrl-C during the n-th trial, counted from 1."""
    plain, seen = steps.conclude, []

    def conclude(*arguments, **named):
        seen.append(1)
        if len(seen) == number:
            raise KeyboardInterrupt
        return plain(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(steps, "conclude", conclude)
        yield
