"""How a rollout's episodes are run: in this process (``local``), or by the workers of a Ray cluster (``ray``).

An engine plays items and writes their records down; it chooses nothing that a record depends on. What all have in
common (attempts, journal, resume, order) stands in :mod:`aworld_gym.engines.base`, and what one episode is in
:mod:`aworld_gym.play`. Nothing here imports Ray until that engine is asked for.
"""

from aworld_gym.engines.base import Engine
from aworld_gym.engines.envs import EnvLike

__all__ = ["Engine", "EnvLike"]
