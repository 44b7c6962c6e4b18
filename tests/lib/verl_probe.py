"""What verl's processes do, written to a folder: loaded in each of them through ``VERL_USE_EXTERNAL_MODULES``.

- ``samples.<pid>.jsonl``: every request to the rollout server, and what it sampled;
- ``step<k>.pt``: the tensors of a step after advantages were computed, and whether the actor was updated;
- ``loss<k>.pt``: what reached the loss, and its gradient with respect to each log-probability;
- ``sessions.<pid>.json``: tool sessions opened and closed in a process, twice a second.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import threading
import time
from pathlib import Path

import torch
import transfer_queue as tq
from fragile_gaia import STEP_FILE
from verl.trainer.ppo.core_algos import get_policy_loss_fn, register_policy_loss
from verl.trainer.ppo.v1 import register_trainer
from verl.workers.rollout.llm_server import LLMServerClient

from adapters.verl.plugin import EnvTrainer
from aworld_gym.toolchain import stats

FOLDER = "VERL_PROBE"
"""Environment variable: where to write."""
TRAINER, LOSS = "probe_sync", "probe"
FIELDS = "uid prompts responses response_mask rm_scores rollout_log_probs old_log_probs advantages extra_fields".split()


def folder() -> Path:
    return Path(os.environ[FOLDER])


@register_trainer(TRAINER)
class ProbeTrainer(EnvTrainer):
    """The adapter's trainer, watched."""

    def on_step_begin(self):
        Path(os.environ[STEP_FILE]).write_text(str(self.global_steps))
        return super().on_step_begin()

    def _compute_advantage(self, batch, metrics):
        out = super()._compute_advantage(batch, metrics)
        data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=FIELDS)
        tensors = {name: list(data[name].unbind()) for name in FIELDS if isinstance(data[name], torch.Tensor)}
        plain = {name: data.pop(name).tolist() for name in ("uid", "extra_fields")}
        self.probed = {**tensors, **plain, "updated": False}
        torch.save(self.probed, folder() / f"step{self.global_steps}.pt")
        return out

    def _update_actor(self, batch, metrics):
        out = super()._update_actor(batch, metrics)
        self.probed["updated"] = any(name.startswith("actor/pg_loss") for name in metrics)
        torch.save(self.probed, folder() / f"step{self.global_steps}.pt")
        return out


_calls = itertools.count()


@register_policy_loss(LOSS)
def probed_loss(old_log_prob, log_prob, advantages, response_mask, **kwargs):
    call = next(_calls)
    kept = {"old": old_log_prob, "new": log_prob.detach(), "advantages": advantages, "mask": response_mask}

    def saw(gradient):
        torch.save({**kept, "gradient": gradient.clone()}, folder() / f"loss{call}.pt")

    if log_prob.requires_grad:
        log_prob.register_hook(saw)
    return get_policy_loss_fn("vanilla")(
        old_log_prob=old_log_prob, log_prob=log_prob, advantages=advantages, response_mask=response_mask, **kwargs
    )


_generate = LLMServerClient.generate


@functools.wraps(_generate)
async def _watched(self, request_id, *, prompt_ids, sampling_params, **kwargs):
    out = await _generate(self, request_id, prompt_ids=prompt_ids, sampling_params=dict(sampling_params), **kwargs)
    line = {"request": request_id, "prompt": list(prompt_ids), "ids": list(out.token_ids), "logprobs": out.log_probs}
    with (folder() / f"samples.{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    return out


LLMServerClient.generate = _watched


def _count_sessions():
    while True:
        time.sleep(0.5)
        now = stats()
        if now.opened and FOLDER in os.environ:
            partial = folder() / f"sessions.{os.getpid()}.partial"
            partial.write_text(json.dumps({"opened": now.opened, "closed": now.closed}))
            os.replace(partial, partial.with_suffix(".json"))


threading.Thread(target=_count_sessions, daemon=True).start()
