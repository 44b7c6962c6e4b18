"""What the servers are configured with: the environment, and an ``.env`` file where there is one.

Values never leave this module for a message: errors name variables, and :meth:`Settings.redact` takes secrets out of
whatever is said to a model or written to a log.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from aworld_gym.errors import ConfigError

ENV_FILE_VAR = "AWORLD_ENV_FILE"
"""Names the file of keys; by default ``.env`` in the working directory, where there is one. ``/dev/null``: none."""
DEFAULT_LLM = "MCP"
"""``MCP_LLM_*`` stand in for the ``*_LLM_*`` of a tool that has none of its own."""

_TRIPLE = re.compile(r"([A-Z]+)_LLM_(BASE_URL|API_KEY|MODEL_NAME)")
_SECRET = re.compile(r".*_(KEY|TOKEN|SECRET|PASSWORD)")
_SHORTEST_SECRET = 6
"""A shorter value is no key that any service gives out, and taking it out would garble texts."""


@dataclass(frozen=True)
class Variable:
    """One setting of a server, as ``.env_template`` lists it."""

    name: str
    what: str
    """One line: what it is for, and where to get it."""
    default: str = ""
    """The value where it is not set; none where empty."""


class Settings:
    """Settings by name.

    Args:
        values: name -> value. Empty values count as not set.
        source: where they come from, for messages.
    """

    def __init__(self, values: Mapping[str, str], source: str = "the environment"):
        self._values = {name: value.strip() for name, value in values.items() if value and value.strip()}
        self.source = source

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None) -> Settings:
        """The environment's settings, and those of the ``.env`` file that it does not have.

        Raises:
            ConfigError: the file that ``AWORLD_ENV_FILE`` names cannot be read.
        """
        environ = os.environ if environ is None else environ
        path = env_file(environ)
        if path is None:
            return cls(environ)
        from dotenv import dotenv_values

        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the settings file {str(path)!r}: {error}") from None
        from io import StringIO

        read = {name: value or "" for name, value in dotenv_values(stream=StringIO(text)).items()}
        return cls({**read, **{n: v for n, v in environ.items() if v}}, f"the environment or {path.name}")

    def get(self, name: str, default: str = "") -> str:
        """A value; ``default`` where it is not set.

        ``THINK_LLM_MODEL_NAME`` and its like fall back to ``MCP_LLM_MODEL_NAME``. A key does so only together with
        its base URL, so that no key is ever sent to another tool's host.

        Raises:
            ConfigError: a secret that no HTTP header could carry.
        """
        value = self._values.get(name) or self._fallback(name) or default
        if _SECRET.fullmatch(name) and not re.fullmatch(r"[!-~]*", value):
            raise ConfigError(f"{name} must be printable ASCII without spaces; is there something else in the line?")
        return value

    def has(self, name: str) -> bool:
        """Whether a value is set."""
        return bool(self.get(name))

    def url(self, name: str, default: str = "") -> str:
        """An ``http`` or ``https`` address, without a slash at its end.

        Raises:
            ConfigError: it is something else, or holds a password.
        """
        value = self.get(name, default).rstrip("/")
        try:
            parts = urlsplit(value)
            port_is_good = parts.port is None or parts.port > 0
        except ValueError:
            port_is_good = False
        if not port_is_good or parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{name} must be an address like {default or 'https://host/v1'}; correct it")
        if parts.username or parts.password:
            raise ConfigError(f"{name} must be an address without a user name or password in it")
        return value

    def redact(self, text: str) -> str:
        """``text`` with every secret value replaced by its variable's name in brackets."""
        for name, value in self._values.items():
            if _SECRET.fullmatch(name) and len(value) >= _SHORTEST_SECRET:
                for form in {value, quote(value, safe=""), repr(value)[1:-1]}:
                    text = text.replace(form, f"[{name}]")
        return text

    def _fallback(self, name: str) -> str:
        default = default_of(name)
        if name.endswith("_LLM_API_KEY") and name.replace("API_KEY", "BASE_URL") in self._values:
            return ""
        return self._values.get(default or "", "")


def default_of(name: str) -> str | None:
    """The variable that stands in for this one where it is not set."""
    match = _TRIPLE.fullmatch(name)
    return None if match is None or match[1] == DEFAULT_LLM else f"{DEFAULT_LLM}_LLM_{match[2]}"


def env_file(environ: Mapping[str, str] | None = None) -> Path | None:
    """The absolute path of the file of keys that would be read; None where there is none.

    Raises:
        ConfigError: ``AWORLD_ENV_FILE`` names no file.
    """
    environ = os.environ if environ is None else environ
    named = environ.get(ENV_FILE_VAR)
    if named == os.devnull:
        return None
    path = Path(named or ".env")
    if path.is_file():
        return path.resolve()
    if named:
        raise ConfigError(f"{ENV_FILE_VAR} names {named!r}, which is no file; correct or unset it")
    return None


def llm_variables(prefix: str, what: str) -> tuple[Variable, ...]:
    """The three settings of a tool that asks a language model."""
    return (
        Variable(f"{prefix}_LLM_BASE_URL", f"OpenAI-compatible endpoint {what}; MCP_LLM_BASE_URL where not set"),
        Variable(f"{prefix}_LLM_API_KEY", "its key; MCP_LLM_API_KEY where neither this nor its base URL is set"),
        Variable(f"{prefix}_LLM_MODEL_NAME", "its model; MCP_LLM_MODEL_NAME where not set"),
    )
