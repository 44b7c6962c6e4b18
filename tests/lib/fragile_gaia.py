"""Servers for GAIA's mini tasks that fail: for training runs in which infrastructure breaks.

In process (``{"python": "fragile_gaia:make_server"}``), sessions fail by the step of the training and by their number
within it: in step 1 the first nine cannot be started (of eight episodes with one retry, one to four are then lost), in
step 2 none can, in step 3 the first two have a tool that hangs. The step is read from a file that the trainer writes.

As a program (``python fragile_gaia.py``) it is a server that ends its own process at the first call.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from pathlib import Path

STEP_FILE = "VERL_PROBE_STEP"
"""Environment variable: the file that holds the step."""

_numbers: Counter[int] = Counter()
_lock = threading.Lock()


def make_server(context, **kwargs):
    from aworld_gym.toolchain.compat import new_server
    from envs.gaia import server as gaia

    path = Path(os.environ[STEP_FILE])
    step = int(path.read_text()) if path.exists() else 0
    with _lock:
        number = _numbers[step]
        _numbers[step] += 1
    if step == 2 or (step == 1 and number < 9):
        raise RuntimeError(f"session {number} of step {step} is told to be broken")
    if step == 3 and number < 2:

        async def hang(**arguments):
            await asyncio.sleep(600)

        tools = gaia._prototypes(True)
        return new_server("gaia", tools=[tool.model_copy(update={"fn": hang}) for tool in tools.values()])
    return gaia.make_server(context, compact=True, **kwargs)


if __name__ == "__main__":
    from aworld_gym.toolchain.compat import new_server

    mortal = new_server("gaia")

    @mortal.tool()
    def list_files() -> str:
        """List the files."""
        os._exit(3)

    @mortal.tool()
    def read_table(path: str) -> str:
        """Read a table."""
        os._exit(3)

    @mortal.tool()
    def calculate(expression: str) -> str:
        """Calculate."""
        os._exit(3)

    @mortal.tool()
    def submit_answer(answer: str) -> str:
        """Submit the answer."""
        os._exit(3)

    mortal.run("stdio")
