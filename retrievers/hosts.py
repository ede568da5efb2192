"""Other machines that a command talks to: each is named before the first word goes there."""

from __future__ import annotations

import ipaddress
import os
import sys
from urllib.parse import urlsplit

NAMED = "HARNESS_HOSTS_NAMED"  # environment variable with the hosts named so far, for the processes of a command


def host_of(address: str) -> str:
    """Host and port of an address, without a login; empty for anything else."""
    try:
        return urlsplit(address).netloc.rpartition("@")[2]
    except ValueError:  # such as a broken IPv6 address
        return ""


def is_this_machine(host: str) -> bool:
    """Whether a host, without a port, is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def name_host(address: str, given_by: str) -> None:
    """Say on standard error, once in a command, which other machine an address leads to, and nothing else of it.

    given_by: the config key or environment variable that holds the address.
    """
    host, named = host_of(address), os.environ.get(NAMED, "").split()
    if not host or host in named or is_this_machine(urlsplit(address).hostname or ""):
        return
    os.environ[NAMED] = " ".join([*named, host])
    print(f"Talks to {host} ({given_by})", file=sys.stderr, flush=True)  # noqa: T201
