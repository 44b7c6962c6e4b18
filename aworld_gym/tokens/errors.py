"""The one error of this package that is not a plain ValueError."""

from __future__ import annotations

from aworld_gym.errors import ConfigError


class UnsupportedTemplateError(ConfigError):
    """A tokenizer or chat template that cannot be used token-exactly; the message says why and what would help."""
