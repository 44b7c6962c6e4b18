"""Batched sampling from a local transformers model: token ids in, token ids and log-probabilities out.

One left-padded batch with a key-value cache; rows that are done leave the batch, so one long row does not hold
the others' work. It fits ``generate`` of :func:`aworld_gym.token_policy.token_rollout`. It does not tokenise,
does not know of episodes, and offers no sampling but temperature: what is sampled is the policy itself, which is
what evaluation and policy gradients need. For large models use a server (vLLM).
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from aworld_gym.errors import ConfigError, MissingDependencyError

if TYPE_CHECKING:
    import torch

COMPACT_BELOW = 0.75
"""Done rows are dropped from the batch once fewer than this share of its rows is still sampling."""


class TransformersGenerator:
    """Sample from a causal language model, many prompts at a time.

    Args:
        model: a ``transformers`` causal language model, on any one device.
        stop_ids: ids that end a turn (``ChatCodec.stop_ids``); the one sampled is kept as the last id.
        pad_id: id to pad with; any will do, padded positions are never attended to.
        temperature: 0 is greedy; otherwise logits are divided by it.
        max_new_tokens: bound on the ids sampled for one prompt.
        seed: decides all sampling from here on; None draws from torch's global generator.
        max_batch: prompts sampled at once; more are done in several batches.

    Example:
        >>> generate = TransformersGenerator(model, stop_ids=codec.stop_ids, seed=0)  # doctest: +SKIP
        >>> [(ids, logprobs)] = generate([codec.prompt(messages, tools)])  # doctest: +SKIP
    """

    def __init__(
        self,
        model: Any,
        *,
        stop_ids: Collection[int],
        pad_id: int = 0,
        temperature: float = 1.0,
        max_new_tokens: int = 1024,
        seed: int | None = None,
        max_batch: int = 256,
    ):
        try:
            import torch
        except ImportError as error:
            raise MissingDependencyError(
                "sampling from a local model needs torch and transformers: pip install 'aworld-gym[trl]'"
            ) from error
        if not stop_ids:
            raise ConfigError("stop_ids is empty, so no turn could ever end: pass ChatCodec.stop_ids")
        if temperature < 0 or max_new_tokens < 1 or max_batch < 1:
            raise ConfigError(
                "expected temperature >= 0, max_new_tokens >= 1 and max_batch >= 1, "
                f"got {temperature}, {max_new_tokens} and {max_batch}"
            )
        self._torch = torch
        self.model = model
        # transformers renamed past_key_values to cache; the new name is asked for where the model has it.
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._cache_name = "cache" if "cache" in inspect.signature(base.forward).parameters else "past_key_values"
        self.stop_ids = frozenset(stop_ids)
        self.pad_id, self.temperature = pad_id, temperature
        self.max_new_tokens, self.max_batch = max_new_tokens, max_batch
        self._random: torch.Generator | None = None
        if seed is not None:
            self.seed(seed)

    def seed(self, seed: int) -> None:
        """Start the random stream anew; equal seeds and calls give equal samples."""
        self._random = self._torch.Generator(device=self.model.device).manual_seed(seed)

    def __call__(
        self, prompts: Sequence[Sequence[int]], limits: Sequence[int] | None = None
    ) -> list[tuple[list[int], list[float]]]:
        """Sample one continuation for each prompt.

        Args:
            prompts: non-empty lists of token ids.
            limits: for each prompt the most ids to sample (``max_new_tokens`` bounds it too).

        Returns:
            For each prompt, in order: the sampled ids, up to a stop id (included) or the limit, and of each its
            log-probability at this temperature (at temperature 1 where sampling is greedy).
        """
        bounds = [self.max_new_tokens] * len(prompts)
        if limits is not None:
            bounds = [min(self.max_new_tokens, limit) for limit in limits]
        if len(bounds) != len(prompts) or any(bound < 1 for bound in bounds) or not all(map(len, prompts)):
            raise ConfigError("expected one positive limit for each prompt, and no empty prompt")
        training = self.model.training
        self.model.eval()
        try:
            out: list[tuple[list[int], list[float]]] = []
            for start in range(0, len(prompts), self.max_batch):
                window = slice(start, start + self.max_batch)
                with self._torch.no_grad():
                    out += self._batch(prompts[window], bounds[window])
            return out
        finally:
            self.model.train(training)

    def _batch(self, prompts: Sequence[Sequence[int]], bounds: Sequence[int]) -> list[tuple[list[int], list[float]]]:
        torch, device = self._torch, self.model.device
        ids, mask = self._pad(prompts)
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        stops = torch.tensor(sorted(self.stop_ids), device=device)
        room = torch.tensor(bounds, device=device)
        rows = torch.arange(len(prompts), device=device)  # batch row -> prompt
        done = torch.zeros(len(prompts), dtype=torch.bool, device=device)
        sampled: list[tuple[Any, Any, Any]] = []  # of each step, three tensors: prompt, id, log-probability
        cache = None
        for step in range(max(bounds)):
            out = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                use_cache=True,
                logits_to_keep=1,
                **{self._cache_name: cache},
            )
            cache = getattr(out, self._cache_name)
            chosen, logprobs = self._choose(out.logits[:, -1].float())
            live = ~done
            sampled.append((rows[live], chosen[live], logprobs[live]))
            done = done | torch.isin(chosen, stops) | (room <= step + 1)
            kept = int((~done).sum())
            if kept == 0:
                break
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], 1)
            ids, positions = chosen[:, None], positions[:, -1:] + 1
            if kept < COMPACT_BELOW * len(rows) and hasattr(cache, "batch_select_indices"):
                keep = (~done).nonzero()[:, 0]
                cache.batch_select_indices(keep)
                ids, mask, positions = ids[keep], mask[keep], positions[keep]
                rows, room, done = rows[keep], room[keep], done[keep]
        return self._collect(sampled, len(prompts))

    def _pad(self, prompts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Left-padded ids and their attention mask, each (prompts, longest)."""
        torch, device = self._torch, self.model.device
        longest = max(map(len, prompts))
        ids = torch.full((len(prompts), longest), self.pad_id, dtype=torch.long)
        mask = torch.zeros((len(prompts), longest), dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, longest - len(prompt) :] = torch.tensor(list(prompt))
            mask[row, longest - len(prompt) :] = 1
        return ids.to(device), mask.to(device)

    def _choose(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        torch = self._torch
        if self.temperature > 0:
            logprobs = (logits / self.temperature).log_softmax(-1)
            chosen = torch.multinomial(logprobs.exp(), 1, generator=self._random)
        else:
            logprobs = logits.log_softmax(-1)
            chosen = logits.argmax(-1, keepdim=True)
        return chosen[:, 0], logprobs.gather(1, chosen)[:, 0]

    @staticmethod
    def _collect(sampled: Sequence[tuple[Any, Any, Any]], prompts: int) -> list[tuple[list[int], list[float]]]:
        out: list[tuple[list[int], list[float]]] = [([], []) for _ in range(prompts)]
        for rows, chosen, logprobs in sampled:
            for row, token, logprob in zip(rows.tolist(), chosen.tolist(), logprobs.tolist(), strict=True):
                out[row][0].append(token)
                out[row][1].append(logprob)
        return out
