"""What is said of a command line that cannot be read: on stderr as ever, and with ``--json`` as the one object too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup


class Commands(TyperGroup):
    """The commands, whose ``--json`` holds for mistakes in their options too."""

    _as_json = False

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **extra: Any) -> Any:
        """Read what stands before the command."""
        self._as_json = "--json" in args
        with self._said():
            return super().make_context(info_name, args, *more, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Read the command's own options, and run it."""
        with self._said():
            return super().invoke(ctx)

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            # By what it has: which package the class is of depends on typer's version. Commands raise no such thing.
            message = getattr(error, "format_message", None)
            if message is not None and self._as_json:
                typer.echo(json.dumps({"error": {"type": type(error).__name__, "message": message()}}))
            raise
