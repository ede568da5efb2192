"""What a config of somebody else's sends to other machines: said before it is sent."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from harness.config.canonical import nodes
from harness.config.components import arguments, target_class
from retrievers.external.http_client import Address

_told: set[str] = set()


def tell(config: Mapping[str, Any]) -> None:
    """Print a line on standard error for each place that the components of a config send to; once per process."""
    for line in destinations(config):
        if line not in _told:
            _told.add(line)
            print(line, file=sys.stderr)  # noqa: T201


def destinations(config: Mapping[str, Any]) -> Iterator[str]:
    """One sentence for each component that sends to another machine.

    config: a checked one. A class of such components says by `reaches` where they send and which variables they read.
    """
    for where, node in nodes(config):
        reaches = getattr(target_class(node, where), "reaches", None) if "_target_" in node else None
        if reaches is None:
            continue
        url, variables = reaches(**arguments(node))
        if Address.of(url, where).local:
            continue
        value = f", with the value of {', '.join(variables)}" if variables else ""
        sender, host = where.removeprefix("config."), urlsplit(url).netloc
        yield f"Note: with this --config-dir, {sender} sends the queries to {host}{value}."
