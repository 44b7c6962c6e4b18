"""Keeping secrets of a toolchain out of what is written down."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from aworld_gym.toolchain.config import ServerConfig, ToolchainConfig

log = logging.getLogger(__name__)

MIN_LENGTH = 8
"""Characters of a value from which on it is taken for a secret; shorter ones stand in ordinary text."""
_NAME = re.compile(
    r"(?<![a-z])(api|access|private|auth|client)?"
    r"(key|token|secret|password|passwd|passphrase|credential|authori[sz]ation|auth|cookie)s?(?![a-z])"
)
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_said: set[str] = set()


@dataclass(frozen=True)
class Secrets:
    """Values that are not to be written down, with the names that stand for them; longer ones first."""

    values: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, config: ToolchainConfig) -> Secrets:
        """Those of a configuration and of this process's environment.

        They are all headers; environment variables, arguments and factory arguments that are called a key, token,
        secret, password, credential, cookie or authorisation; passwords and such parameters of URLs.
        """
        found: dict[str, str] = {}
        for server in config.servers:
            for name, value in _of_server(server):
                found.setdefault(value, name)
        for name, value in sorted(os.environ.items()):
            if _is_secret(name):
                found.setdefault(value, name)
        kept = [(value, name) for value, name in found.items() if len(value) >= MIN_LENGTH]
        return cls(tuple(sorted(kept, key=lambda pair: (-len(pair[0]), pair))))

    def removed(self, value: Any) -> Any:
        """JSON ``value`` with each secret replaced by ``[secret NAME]``; the value itself where it has none."""
        if not self.values:
            return value
        if isinstance(value, str):
            for secret, name in self.values:
                if secret in value:
                    if name not in _said:
                        log.warning("a secret (%s) stands in what a tool was asked or gave; it is not recorded", name)
                        _said.add(name)
                    value = value.replace(secret, f"[secret {name}]")
            return value
        if isinstance(value, Mapping):
            return {self.removed(name): self.removed(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.removed(item) for item in value]
        return value


def _of_server(server: ServerConfig) -> Iterator[tuple[str, str]]:
    for name, value in server.headers.items():
        yield name, value
        kind, _, rest = value.partition(" ")
        if rest and kind.isalpha():  # "Bearer ..."
            yield name, rest
    named: list[tuple[str, Any]] = [*server.env.items(), *server.kwargs.items()]
    previous = ""
    for argument in server.args:
        option, _, value = argument.partition("=")
        named += [(option.lstrip("-"), value), (previous.lstrip("-"), argument)]
        previous = argument if argument.startswith("-") else ""
    for address in server.url.split():
        url = urlsplit(address)
        named += [("password", url.password), *parse_qsl(url.query)]
    for name, value in named:
        if isinstance(value, str) and _is_secret(name):
            yield name, value


def _is_secret(name: str) -> bool:
    """Whether a thing of that name is secret: ``SERPER_API_KEY``, ``accessToken``; not ``AUTHOR`` or ``KEYBOARD``."""
    return _NAME.search(_HUMP.sub("_", name).lower()) is not None
