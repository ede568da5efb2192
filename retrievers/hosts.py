"""Addresses of servers, the secrets sent to them, and the notice that names the hosts to which a command talks."""

from __future__ import annotations

import ipaddress
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from harness.errors import BadInput
from retrievers.redaction import register

NAMED = "HARNESS_HOSTS_NAMED"  # environment variable: the hosts that the processes of a command have printed so far


def host_of(address: str) -> str:
    """Return the host and port of an address, without user and password; "" if it has no host."""
    try:
        return urlsplit(address).netloc.rpartition("@")[2]
    except ValueError:  # for example a broken IPv6 address
        return ""


def is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def name_host(address: str, given_by: str) -> None:
    """Print the host of an address to standard error, once per command, unless it is this machine."""
    host, named = host_of(address), os.environ.get(NAMED, "").split()
    if not host or host in named or is_this_machine(urlsplit(address).hostname or ""):
        return
    os.environ[NAMED] = " ".join([*named, host])
    print(f"Talks to {host} ({given_by})", file=sys.stderr, flush=True)  # noqa: T201


@dataclass(frozen=True)
class Address:
    """An http(s) address without secrets. key: its config key. local: whether the host is this machine."""

    url: str
    key: str
    local: bool

    @classmethod
    def of(cls, url: str, key: str) -> Address:
        """Raise BadInput, without quoting a secret, unless `url` is an http(s) address without user and password."""
        name = key.rpartition(".")[2]
        try:
            parts = urlsplit(url if re.fullmatch("[!-~]+", url) else "")
            host, _ = parts.hostname, parts.port  # raises for an invalid port
            (host or "").encode("idna")  # raises for an invalid host name
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https"):
            raise BadInput(f"{name} is not an http(s) address. Give one such as https://example.org/search.")
        if "@" in parts.netloc or parts.fragment:
            raise BadInput(
                f"{name} contains a user, a password or a fragment, and would be logged with the run. Remove "
                "that part; secrets belong in environment variables."
            )
        return cls(url, key, is_this_machine(host))

    @property
    def encrypted(self) -> bool:
        """Whether only the server can read the requests: they use https, or stay on this machine."""
        return self.local or self.url.startswith("https:")


@dataclass(frozen=True)
class Secrets:
    """Headers whose values are in environment variables. Values are read for each request, never stored or shown.

    variables: header -> environment variable. prefix: text before each value, such as "Bearer ".
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""

    def __post_init__(self) -> None:
        register(*self.variables.values())

    def unset(self) -> list[str]:
        return [name for name in self.variables.values() if not os.environ.get(name, "").strip()]

    def headers(self) -> dict[str, str]:
        """Return header -> value for all variables that are set. Raise BadInput for an invalid header value."""
        found = {}
        for header, name in self.variables.items():
            value = os.environ.get(name, "").strip()
            if not re.fullmatch("[!-~]*" if self.prefix else "[ -~]*", value):  # with a prefix, no spaces
                raise BadInput(f"The key in {name} contains characters that a key cannot have. Copy it again.")
            if value:
                found[header] = self.prefix + value
        return found


def checked_variable(name: str, key: str) -> str:
    """Return `name`. If it is invalid, raise BadInput without quoting it, because it may be the secret itself."""
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name):
        raise BadInput(f"{key} is not the name of an environment variable. Name the variable that holds the value.")
    return name
