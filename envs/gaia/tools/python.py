"""``run_python``: the model's own programs, in the sandbox."""

from __future__ import annotations

import signal
import threading
from typing import Annotated

from pydantic import Field

from envs.gaia import sandbox
from envs.gaia.tools.base import ToolContext, ToolDef, ToolFault

MAX_CODE = 200_000
"""Characters of a program."""


def tools(context: ToolContext) -> list[ToolDef]:
    """The program runner."""

    def run_python(
        code: Annotated[str, Field(description="A program; print what you need.")] = "",
        path: Annotated[str, Field(description="Or a .py file of the workspace to run.")] = "",
        *,
        _cancelled: threading.Event,
    ) -> str:
        if bool(code.strip()) == bool(path):
            raise ToolFault("give either code or the path of a .py file")
        if len(code) > MAX_CODE:
            raise ToolFault(f"the program has {len(code):,} characters; at most {MAX_CODE:,} are taken")
        source = context.workspace.read(path, limit=MAX_CODE) if path else code.encode("utf-8", "replace")
        name = f"/workspace/{'/'.join(context.workspace.parts(path))}" if path else sandbox.CODE
        try:
            result = sandbox.run(
                source, context.workspace.root, name=name, mode=context.sandbox, echo=not path, cancelled=_cancelled
            )
        except sandbox.SandboxError as error:
            raise ToolFault(str(error)) from None
        output = result.output.rstrip("\n")
        if result.ok:
            return output or "(no output: print what you need)"
        raise ToolFault("\n".join(filter(None, [output, f"[{_end(result)}]"])))

    description = (
        "Run Python 3 (standard library only, no network, no other processes) with the workspace as working "
        "directory; gives what it prints. Stopped after 10 s of processor time."
    )
    return [ToolDef(run_python, description, read_only=False, idempotent=False, takes_cancel=True)]


def _end(result: sandbox.Run) -> str:
    if result.stopped:
        return result.stopped
    if result.returncode is not None and result.returncode < 0:
        return f"ended by signal {signal.Signals(-result.returncode).name}"
    return f"exit code {result.returncode}"
