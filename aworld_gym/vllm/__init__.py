"""Episodes played by a model that vLLM serves, in token ids both ways.

:class:`VllmGenerator` samples from a server, :class:`VllmServer` starts one and ends it for certain, and
:class:`VllmPolicy` is the policy made of them that ``aworld-gym eval --policy vllm`` plays. Nothing here imports vLLM:
the server is a program, in this environment, in another one, or on another machine.
"""

from aworld_gym.vllm.generator import Sampling, Served, VllmGenerator
from aworld_gym.vllm.policy import VllmPolicy
from aworld_gym.vllm.server import VllmServer

__all__ = ["Sampling", "Served", "VllmGenerator", "VllmPolicy", "VllmServer"]
