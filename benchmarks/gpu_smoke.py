"""The Python part of ``gpu_smoke.sh``: a model of Qwen3-0.6B's shape through a few GRPO steps of TRL, timed.

No hub and no download: weights are random, the tokenizer is built here (it has Qwen3's number of ids, so that logits
cost what they cost there), and a few supervised steps on the mini world's demonstrator teach the calling of tools.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import gymnasium as gym
import typer

import aworld_gym  # noqa: F401 - registers the envs
from adapters import trl
from aworld_gym.tokens import ChatCodec
from benchmarks import common

with common.needs("gaia,trl"):
    import torch
    import torch.nn.functional as F
    from tokenizers import Tokenizer
    from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    from examples.train_gaia.tokenizer import build_tokenizer
    from examples.train_gaia.warm import WarmSettings, demonstrations

SHAPE = {
    "vocab_size": 151_936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
"""Qwen3-0.6B's."""
TINY = {
    "vocab_size": 600,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
}
WARM_S = 90.0
"""Seconds that the supervised steps may take in all."""


def main(
    output: Annotated[Path, typer.Option(help="Where the run and result.json are left.")],
    steps: Annotated[int, typer.Option(help="GRPO steps.")] = 5,
    warm_steps: Annotated[int, typer.Option(help="Supervised steps before.")] = 200,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="A tiny model on the CPU, one step.")] = False,
) -> None:
    """Build, warm up, train, and print tokens a second and step times."""
    if dry_run:
        steps, warm_steps = 1, 2
    elif not torch.cuda.is_available():
        raise SystemExit("gpu_smoke: torch sees no GPU; --dry-run runs on the CPU")
    device = torch.device("cpu" if dry_run else "cuda")
    dtype = torch.float32 if dry_run else torch.bfloat16
    env = gym.make("AWorld/Gaia-v0", preset="mini")
    _, info = env.reset(seed=0)
    env.close()
    started = time.perf_counter()
    model, tokenizer = build(TINY if dry_run else SHAPE, info["tools"], device, dtype)
    count = sum(p.numel() for p in model.parameters())
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(
        f"{count / 1e6:.0f} M parameters, {dtype}, {name}; built in {time.perf_counter() - started:.1f} s", flush=True
    )
    losses, seconds = warm(model, tokenizer, info["tools"], warm_steps)
    print(f"{len(losses)} supervised steps in {seconds:.1f} s, loss {losses[0]:.2f} -> {losses[-1]:.2f}", flush=True)
    model.save_pretrained(output / "start")
    tokenizer.save_pretrained(output / "start")
    del model
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    rows = 8 if dry_run else 64
    result = trl.train(
        env.spec,
        model=str(output / "start"),
        output_dir=output / "run",
        config=config(steps, rows, dry_run),
        rollout={"max_turn_tokens": 48},
    )
    found = summary(result.metrics, rows)
    found |= {"model": f"{count / 1e6:.0f} M parameters", "device": name, "episodes": dict(result.counts)}
    if device.type == "cuda":
        found["peak_memory_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    (output / "result.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for step in found["steps"]:
        print(
            "step {step}: {step_s:.2f} s (generation {generation_s:.2f}, env {env_s:.2f}), {tokens_s:.0f} tok/s".format(
                **step
            )
        )
    print(json.dumps({key: value for key, value in found.items() if key != "steps"}))


def build(
    shape: Mapping[str, int], tools: Sequence[dict[str, Any]], device: torch.device, dtype: torch.dtype
) -> tuple[Qwen3ForCausalLM, PreTrainedTokenizerFast]:
    """A model with random weights, and a tokenizer that can read each of its ids."""
    tokenizer = widened(build_tokenizer(list(tools)), shape["vocab_size"])
    torch.manual_seed(0)
    config = Qwen3Config(
        **shape,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with device:
        model = Qwen3ForCausalLM(config).to(dtype)
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    return model, tokenizer


def widened(tokenizer: PreTrainedTokenizerFast, size: int) -> PreTrainedTokenizerFast:
    """The same tokenizer with as many ids as a model has: words that samples may hold and no text is written in."""
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary = parts["model"]["vocab"]
    vocabulary |= {token["content"]: token["id"] for token in parts["added_tokens"]}
    vocabulary |= {f"word{k}": k for k in range(len(tokenizer), size)}
    wide = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(parts)),
        eos_token=tokenizer.eos_token,
        pad_token=tokenizer.pad_token,
        padding_side="left",
    )
    wide.chat_template = tokenizer.chat_template
    return wide


def warm(
    model: Qwen3ForCausalLM, tokenizer: PreTrainedTokenizerFast, tools: Sequence[dict[str, Any]], steps: int
) -> tuple[list[float], float]:
    """Imitate the mini world's demonstrator for some steps, or as many as the time allows; losses and seconds."""
    traces = demonstrations(ChatCodec(tokenizer), list(tools), WarmSettings())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.98), weight_decay=0.0)
    losses, began, device = [], time.perf_counter(), model.device
    model.train()
    while len(losses) < steps and time.perf_counter() - began < WARM_S:
        rows = [next(traces) for _ in range(8)]
        longest = max(len(ids) for ids, _ in rows)
        ids = torch.full((len(rows), longest), tokenizer.pad_token_id, device=device)
        mask = torch.zeros(ids.shape, dtype=torch.bool, device=device)
        for k, (row, bits) in enumerate(rows):
            ids[k, : len(row)] = torch.tensor(row, device=device)
            mask[k, : len(row)] = torch.tensor(bits, device=device).bool()
        hidden = model.model(input_ids=ids).last_hidden_state[:, :-1][mask[:, 1:]]
        loss = F.cross_entropy(model.lm_head(hidden).float(), ids[:, 1:][mask[:, 1:]])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, time.perf_counter() - began


def config(steps: int, rows: int, dry_run: bool) -> dict[str, Any]:
    """TRL's GRPOConfig."""
    return {
        "max_steps": steps,
        "per_device_train_batch_size": rows,
        "num_generations": 8,
        "max_completion_length": 400,
        "learning_rate": 1e-6,
        "beta": 0.0,
        "bf16": not dry_run,
        "model_init_kwargs": {"dtype": "float32" if dry_run else "bfloat16"},
        "gradient_checkpointing": False,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }


def summary(metrics: Sequence[Mapping[str, Any]], rows: int) -> dict[str, Any]:
    """Steps with their times, and means over all but the first, which warms caches."""
    steps = []
    for row in metrics:
        if "time/generate_s" not in row:
            continue
        sampled, generation = row.get("env/sampled_tokens", 0.0) * rows, row["time/generate_s"]
        steps.append(
            {
                "step": row["step"],
                "step_s": row["step_time"],
                "generation_s": generation,
                "env_s": row["time/env_s"],
                "sampled_tokens": round(sampled),
                "tokens_s": sampled / generation,
                "reward": row["reward"],
                "tool_calls": row.get("env/tool_calls"),
                "logprob_gap": row.get("sampling/logprob_gap/mean"),
            }
        )
    later = steps[1:] or steps
    means = {f"mean_{name}": sum(s[name] for s in later) / len(later) for name in ("step_s", "tokens_s")}
    return {"steps": steps, **means, "largest_logprob_gap": max(s["logprob_gap"] or 0.0 for s in steps)}


if __name__ == "__main__":
    typer.run(main)
