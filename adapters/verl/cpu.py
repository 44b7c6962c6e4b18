"""verl on a machine without an accelerator: for tests, and for trying things out. A run on GPUs never imports this.

verl has no CPU backend. What it needs of one is registered here through its own registries (a platform, a rollout
replica, a rollout adapter), and one function is wrapped because torch refuses the backend string that verl builds.
``adapters.verl.train`` loads this module in every process where there is no accelerator, with :data:`SETTINGS` and
:data:`ENVIRONMENT`.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import os
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray
import torch

# verl loads plugins while it is imported, and they may ask for the platform: where this module is what imports verl
# (Ray unpickles a class of it), plugins wait until it is done.
_HOOK = "VERL_USE_EXTERNAL_MODULES"
_plugins = os.environ.pop(_HOOK, "") if "verl" not in sys.modules else ""
from verl.plugin.platform import PlatformBase, PlatformRegistry  # noqa: E402

if _plugins:
    os.environ[_HOOK] = _plugins

PLATFORM = "aworld_cpu"

ENVIRONMENT = {
    "VERL_PLATFORM": PLATFORM,
    "VERL_ENGINE_DEVICE": "cuda",  # the name of verl's FSDP engine, which is for any device
    "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    "TOKENIZERS_PARALLELISM": "false",
    # A busy machine starts Ray slowly, and starting workers ahead only slows it further.
    "RAY_raylet_start_wait_time_s": "300",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_enable_worker_prestart": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def _device_module() -> types.ModuleType:
    """Stands where ``torch.cuda`` would: nothing to manage."""
    module: Any = types.ModuleType("aworld_cpu_device")
    module.is_available = lambda: False  # verl then asks for no memory statistics
    module.device_count = lambda: 1
    module.current_device = lambda: "cpu"
    module.get_device_name = lambda *args, **kwargs: "CPU"
    module.mem_get_info = lambda *args, **kwargs: (1 << 34, 1 << 34)
    module.manual_seed = module.manual_seed_all = torch.manual_seed
    module.get_rng_state, module.set_rng_state = torch.get_rng_state, torch.set_rng_state
    for name in ("set_device", "synchronize", "empty_cache", "ipc_collect", "reset_peak_memory_stats"):
        setattr(module, name, lambda *args, **kwargs: None)
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        setattr(module, name, lambda *args, **kwargs: 0)
    return module


@PlatformRegistry.register(platform=PLATFORM)
class CpuPlatform(PlatformBase):
    """A platform of one device, the CPU."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _device_module()

    def is_available(self) -> bool:  # noqa: D102 - verl's interface, from here on
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:  # noqa: D102
        return False  # never found by itself: VERL_PLATFORM names it

    def current_device(self) -> Any:  # noqa: D102
        return "cpu"

    def device_count(self) -> int:  # noqa: D102
        return 1

    def set_device(self, device_index: int) -> None:  # noqa: D102
        pass

    def synchronize(self, device_index: int | None = None) -> None:  # noqa: D102
        pass

    def manual_seed(self, seed: int) -> None:  # noqa: D102
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:  # noqa: D102
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:  # noqa: D102
        pass

    def empty_cache(self) -> None:  # noqa: D102
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:  # noqa: D102
        return None, None

    def communication_backend_name(self) -> str:  # noqa: D102
        return "gloo"

    def visible_devices_envvar(self) -> str:  # noqa: D102
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:  # noqa: D102
        yield

    def profiler_start(self) -> None:  # noqa: D102
        pass

    def profiler_stop(self) -> None:  # noqa: D102
        pass

    def ray_resource_name(self) -> str:  # noqa: D102
        return "GPU"  # logical: Ray is started with one

    def ray_noset_envvars(self) -> list[str]:  # noqa: D102
        return []

    def is_ipc_supported(self) -> bool:  # noqa: D102
        return False

    def cudart(self) -> Any:  # noqa: D102
        return None


# What follows asks for the platform as it is imported, so that one comes first.
from verl.utils import distributed  # noqa: E402
from verl.utils.config import omega_conf_to_dataclass  # noqa: E402
from verl.workers.rollout import base  # noqa: E402
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput  # noqa: E402

from adapters.verl.agent_loop import CPU_ROLLOUT  # noqa: E402

_ACTOR, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
SETTINGS: Mapping[str, Any] = {
    "trainer.device": "cpu",
    "trainer.nnodes": 1,
    "trainer.n_gpus_per_node": 1,  # logical: what verl asks Ray for
    "reward.num_workers": 1,
    "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
    "data.dataloader_num_workers": 0,
    "actor_rollout_ref.model.use_remove_padding": False,  # needs flash-attention
    "actor_rollout_ref.model.enable_gradient_checkpointing": False,
    "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
    f"{_ACTOR}.strategy": "fsdp2",
    f"{_ACTOR}.use_torch_compile": False,
    f"{_ACTOR}.fsdp_config.use_torch_compile": False,
    f"+{_ACTOR}.fsdp_config.mixed_precision": {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
    f"{_ROLLOUT}.name": CPU_ROLLOUT,
    f"{_ROLLOUT}.dtype": "float32",
    f"{_ROLLOUT}.tensor_model_parallel_size": 1,
    f"{_ROLLOUT}.agent.num_workers": 1,
}
"""verl's settings for one process of each kind: with more than Ray has room for, verl waits for ever (verl #7656)."""
RAY_CPUS = 16
"""Logical CPUs: verl starts about nine actors that each ask for one."""


def settings() -> dict[str, Any]:
    """What to set here: :data:`SETTINGS`, and a Ray of the right size where this process starts it."""
    if "RAY_ADDRESS" in os.environ:
        return dict(SETTINGS)
    init = "ray_kwargs.ray_init"
    ray_of_ours = {f"{init}.num_cpus": RAY_CPUS, f"+{init}.num_gpus": 1, f"+{init}.include_dashboard": False}
    return {**SETTINGS, **ray_of_ours}


_initialise = distributed.initialize_global_process_group_ray


@functools.wraps(_initialise)
def _initialise_gloo(timeout_second: int | None = None, backend: str | None = None) -> None:
    _initialise(timeout_second, backend="cpu:gloo")  # verl's "cpu:gloo,cpu:gloo" names a device twice


distributed.initialize_global_process_group_ray = _initialise_gloo


# ---- rollout ---------------------------------------------------------------------------------------------------------


def _server_name(rank: int, job: str) -> str:
    return f"aworld_transformers_{job}_{rank}"


class TransformersServer:
    """Ids in, ids out; requests that wait together are generated together.

    Every request has its own seed, so what it gets does not depend on which others came with it (up to rounding).
    """

    def __init__(self, path: str, max_length: int):
        from transformers import AutoModelForCausalLM

        self._model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        ends = self._model.generation_config.eos_token_id
        self._ends = {i for i in (ends if isinstance(ends, list) else [ends]) if i is not None}
        self._max_length, self._step = max_length, 0
        self._waiting: list[tuple[list[int], dict[str, Any], asyncio.Future[TokenOutput]]] = []
        self._busy = asyncio.Lock()

    async def ping(self) -> int:
        """Answers once the model is loaded."""
        return os.getpid()

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        """Sample one continuation."""
        future: asyncio.Future[TokenOutput] = asyncio.get_running_loop().create_future()
        self._waiting.append((list(prompt_ids), dict(sampling_params), future))
        async with self._busy:
            if not future.done():
                await asyncio.sleep(0.01)  # for those that come at the same time
                batch, self._waiting = self._waiting, []
                waiters = [waiter for *_, waiter in batch]
                try:
                    outputs = await asyncio.to_thread(self._batch, [ids for ids, *_ in batch], [p for _, p, _ in batch])
                except Exception as error:
                    for waiter in waiters:
                        waiter.set_exception(error)
                else:
                    for waiter, output in zip(waiters, outputs, strict=True):
                        waiter.set_result(output)
        return await future

    async def update_weights(self, weights: dict[str, torch.Tensor], global_steps: int | None) -> None:
        """Take the trainer's weights."""
        async with self._busy:
            missing, unexpected = self._model.load_state_dict(weights, strict=False)
            tied = set(self._model.all_tied_weights_keys) if self._model.config.tie_word_embeddings else set()
            if unexpected or set(missing) - tied:
                raise ValueError(f"weights that do not fit the model: {unexpected or missing}")
            self._model.tie_weights()
            self._step = self._step if global_steps is None else int(global_steps)

    @torch.no_grad()
    def _batch(self, prompts: list[list[int]], params: list[dict[str, Any]]) -> list[TokenOutput]:
        rows, longest = len(prompts), max(map(len, prompts))
        ids = torch.zeros(rows, longest, dtype=torch.long)
        mask = torch.zeros(rows, longest, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            mask[row, longest - len(prompt) :] = 1
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        limits = [min(int(p["max_tokens"]), self._max_length - len(q)) for p, q in zip(params, prompts, strict=True)]
        sources = [torch.Generator().manual_seed(int(p["seed"])) if "seed" in p else None for p in params]
        stops = [self._ends | set(p.get("stop_token_ids") or ()) for p in params]
        out: list[list[int]] = [[] for _ in prompts]
        logprobs: list[list[float]] = [[] for _ in prompts]
        open_rows, cache = set(range(rows)), None
        while open_rows:
            result = self._model(
                input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
            )
            cache, logits = result.past_key_values, result.logits[:, -1].float()
            ids = torch.zeros(rows, 1, dtype=torch.long)
            for row in sorted(open_rows):
                token, logprob = _sampled(logits[row], params[row], sources[row])
                ids[row, 0] = token
                out[row].append(token)
                logprobs[row].append(logprob)
                if token in stops[row] or len(out[row]) >= limits[row]:
                    open_rows.remove(row)
            mask = torch.cat([mask, torch.ones(rows, 1, dtype=torch.long)], dim=1)
            positions = positions[:, -1:] + 1
        extra = {"global_steps": self._step}
        return [
            TokenOutput(token_ids=a, log_probs=b, stop_reason="completed", num_preempted=0, extra_fields=dict(extra))
            for a, b in zip(out, logprobs, strict=True)
        ]

    async def sleep(self, *args: Any, **kwargs: Any) -> None:
        """Nothing to release; nor in any of the following."""

    wake_up = abort_all_requests = resume_generation = clear_kv_cache = sleep
    release_kv_cache = resume_kv_cache = start_profile = stop_profile = sleep


def _sampled(logits: torch.Tensor, params: Mapping[str, Any], source: torch.Generator | None) -> tuple[int, float]:
    """One id and its log-probability, after temperature and truncation, as vLLM reports it with processed logprobs."""
    temperature = float(params.get("temperature", 1.0))
    if temperature == 0:
        token = int(logits.argmax())
        return token, float(logits.log_softmax(-1)[token])
    scaled = (logits / temperature).log_softmax(-1)
    allowed, top_k, top_p = scaled, int(params.get("top_k", -1)), float(params.get("top_p", 1.0))
    if top_k > 0:
        allowed = allowed.masked_fill(allowed < allowed.topk(min(top_k, len(allowed))).values[-1], -torch.inf)
    if top_p < 1.0:
        ordered, order = allowed.softmax(-1).sort(descending=True)
        allowed = allowed.index_fill(0, order[ordered.cumsum(-1) - ordered > top_p], -torch.inf)
    token = int(torch.multinomial(allowed.softmax(-1), 1, generator=source))
    return token, float(scaled[token])


class TransformersReplica(RolloutReplica):
    """Starts the server beside the trainer."""

    async def launch_servers(self) -> None:  # noqa: D102
        model = omega_conf_to_dataclass(self.model_config)
        name = _server_name(self.replica_rank, ray.get_runtime_context().get_job_id())
        actor = ray.remote(TransformersServer).options(num_cpus=0, name=name, max_concurrency=self.max_concurrency)
        server = actor.remote(model.local_path, self.config.prompt_length + self.config.response_length)
        await server.ping.remote()
        self.servers, self._server_handle = [server], server
        self._server_address = f"{CPU_ROLLOUT}://{self.replica_rank}"


class TransformersRollout(base.BaseRollout):
    """The trainer's side: hands its weights to the server."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any, **kwargs: Any):
        super().__init__(config, model_config, device_mesh)
        self.sleep_level = 2

    async def resume(self, tags: list[str]) -> None:  # noqa: D102
        pass

    async def release(self) -> None:  # noqa: D102
        pass

    async def update_weights(  # noqa: D102
        self, weights: Any, wire_format: str = "named_tensors", global_steps: int | None = None, **kwargs: Any
    ) -> None:
        if wire_format != "named_tensors":
            raise NotImplementedError(f"the CPU rollout takes whole weights, not {wire_format!r}")
        state = {}
        if hasattr(weights, "__aiter__"):
            async for name, tensor in weights:
                state[name] = tensor.detach().to("cpu", torch.float32)
        else:
            state = {name: tensor.detach().to("cpu", torch.float32) for name, tensor in weights}
        rank = int(os.environ.get("RANK", 0))
        server = ray.get_actor(_server_name(rank, ray.get_runtime_context().get_job_id()))
        await server.update_weights.remote(state, global_steps)


RolloutReplicaRegistry.register(CPU_ROLLOUT, lambda: TransformersReplica)
base._ROLLOUT_REGISTRY[CPU_ROLLOUT, "async"] = f"{__name__}.{TransformersRollout.__name__}"

for _name in ("adapters.verl.plugin", *filter(None, _plugins.split(","))):
    importlib.import_module(_name)
