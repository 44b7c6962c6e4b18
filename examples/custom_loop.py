"""REINFORCE in plain torch on a tool env: shaped step rewards, reward-to-go, exact tokens, no trainer.

    python examples/custom_loop.py --model runs/gaia/start --steps 20      # `make train` leaves that folder

The env is stepped message by message. What is trained on is what was sampled: the codec turns the sampled ids into
the action and the tools' answers into the ids to append, and nothing is ever tokenised again.
"""

from __future__ import annotations

import argparse

import gymnasium as gym
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import aworld_gym  # noqa: F401  (registers AWorld/*)
from aworld_gym.policies.transformers import TransformersGenerator
from aworld_gym.tokens import ChatCodec, TokenTrajectory, TrajectoryBuilder
from aworld_gym.wrappers import RewardShaping


def make_env() -> gym.Env:
    env = gym.make("AWorld/Gaia-v0", preset="mini")
    env = RewardShaping(env, "plan_progress", amount=0.3)  # facts that the task needs, as tools show them
    return RewardShaping(env, "tool_error_penalty", amount=0.05)


def play(env: gym.Env, codec: ChatCodec, generate: TransformersGenerator, seed: int) -> TokenTrajectory | None:
    """One episode, token-exact; None where the tools broke, which says nothing about the model."""
    messages, info = env.reset(seed=seed)
    tokens = TrajectoryBuilder()
    ids = codec.prompt(messages, info["tools"])
    tokens.prompt(ids)
    while True:
        [(sampled, logprobs)] = generate([ids])
        tokens.sampled(sampled, logprobs)
        messages, reward, terminated, truncated, info = env.step(codec.parse(sampled).message)
        if not info["valid"]:
            return None
        tokens.reward(reward)
        if terminated or truncated or sampled[-1] not in codec.stop_ids:
            return tokens.build()
        appended = codec.extend(sampled, messages)
        tokens.appended(appended)
        ids = ids + sampled + appended


def returns_to_go(trajectory: TokenTrajectory) -> list[float]:
    """For each response id, the reward from its turn on; 0 for ids that were not sampled."""
    weights = [0.0] * len(trajectory.response_ids)
    for turn, (start, stop) in enumerate(trajectory.turns):
        weights[start:stop] = [sum(trajectory.turn_rewards[turn:])] * (stop - start)
    return weights


def loss_of(model: torch.nn.Module, batch: list[TokenTrajectory]) -> torch.Tensor:
    """-E[log p x (reward-to-go - baseline)], over sampled tokens only (Williams 1992)."""
    longest = max(len(t.ids) for t in batch)
    ids, weights, mask = (torch.zeros(len(batch), longest, dtype=d) for d in (torch.long, torch.float, torch.float))
    attention = torch.zeros_like(ids)
    for row, t in enumerate(batch):
        n, start = len(t.ids), len(t.prompt_ids)
        ids[row, :n] = torch.tensor(t.ids)
        attention[row, :n] = 1
        weights[row, start:n] = torch.tensor(returns_to_go(t))
        mask[row, start:n] = torch.tensor(t.mask, dtype=torch.float)
    ids, attention, weights, mask = (x.to(model.device) for x in (ids, attention, weights, mask))
    logits = model(input_ids=ids, attention_mask=attention).logits[:, :-1].float()
    logprobs = logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0]
    weights, mask = weights[:, 1:], mask[:, 1:]
    baseline = (weights * mask).sum() / mask.sum()
    return -(logprobs * (weights - baseline) * mask).sum() / mask.sum()


def main() -> list[float]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model",
        required=True,
        help="a folder or hub name with a chat template that knows tools; "
        "offline, `make train` leaves two: runs/gaia/start before its GRPO, runs/gaia/final after it",
    )
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--episodes", type=int, default=16, help="per step")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--max-new-tokens", type=int, default=48, help="per turn")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    try:
        tokenizer = AutoTokenizer.from_pretrained(args.model)
        model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32)
    except (OSError, ValueError) as error:
        why = str(error).splitlines()[0]
        parser.error(f"{args.model!r} is no model's folder, nor a hub name that loads here ({why}); see --help")
    codec = ChatCodec(tokenizer)
    generate = TransformersGenerator(model, stop_ids=codec.stop_ids, max_new_tokens=args.max_new_tokens, seed=args.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.0)
    env, history = make_env(), []
    try:
        for step in range(args.steps):
            seeds = range(args.seed + step * args.episodes, args.seed + (step + 1) * args.episodes)
            batch = [t for seed in seeds if (t := play(env, codec, generate, seed)) is not None]
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            history.append(sum(t.total_reward for t in batch) / len(batch))
            print(f"step {step}: mean return {history[-1]:.3f} over {len(batch)} valid episodes", flush=True)
    finally:
        env.close()
    return history


if __name__ == "__main__":
    main()
