"""The rows of the parity file, once more in the tensors that reach TRL's loss."""

import json
from pathlib import Path

import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig

from adapters import trl
from adapters.trl.trainer import EnvGRPOTrainer
from aworld_gym.testing import reference
from aworld_gym.trained import TrainedRow

FILE = json.loads((Path(__file__).parents[2] / "data" / "parity_rows.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    """The trainer's tensors of a batch that was sampled by the script, and its rows."""
    codec = reference.codec()
    script, tokenizer = reference.Script(codec), codec.tokenizer
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=8192,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )

    class Scripted(EnvGRPOTrainer):
        def _generate_single_turn(self, prompts, *args, **kwargs):
            rows = script(prompts, [self.generation_config.max_new_tokens] * len(prompts))
            return [ids for ids, _ in rows], [logprobs for _, logprobs in rows]

    items = reference.items(*FILE["kinds"])
    env = reference.shaped()
    parts = trl.spec(env, tasks=[item.seed for item in items])
    env.close()
    folder = tmp_path_factory.mktemp("run")
    trainer = Scripted(
        Qwen3ForCausalLM(config),
        parts.reward_funcs,
        GRPOConfig(
            str(folder),
            per_device_train_batch_size=2 * len(items),
            num_generations=2,
            max_completion_length=reference.BUDGET,
            shuffle_dataset=False,
            use_cpu=True,
            bf16=False,
            report_to="none",
        ),
        parts.train_dataset,
        processing_class=tokenizer,
        rollout_func=parts.rollout_func,
        credit="step",
    )
    trainer.model.train()
    rows = next(iter(trainer.get_train_dataloader()))
    return trainer._generate_and_score_completions(rows), rows


def test_tensors_are_the_rows(scored):
    tensors, _ = scored
    expected = [TrainedRow.from_dict(row) for row in FILE["rows"] for _ in range(2)]
    for k, row in enumerate(expected):
        prompt = tensors["prompt_ids"][k][tensors["prompt_mask"][k].bool()]
        kept = tensors["completion_mask"][k].bool()
        assert tuple(prompt.tolist()) == row.prompt_ids
        assert tuple(tensors["completion_ids"][k][kept].tolist()) == row.response_ids
        trained = tensors["completion_mask"][k] * tensors["tool_mask"][k]
        assert tuple(trained[: len(row.mask)].tolist()) == row.mask and not trained[len(row.mask) :].any()
        logprobs = tensors["sampling_per_token_logps"][k][: len(row.mask)].tolist()
        assert logprobs == pytest.approx(row.logprobs, rel=1e-6)


def test_turns_are_credited_at_their_own_ids(scored):
    """Two equal episodes have nothing to learn from each other, but for their turns: the later earn less to come."""
    tensors, rows = scored
    expected = [TrainedRow.from_dict(row) for row in FILE["rows"] for _ in range(2)]
    for k, row in enumerate(expected):
        assert rows[k]["turn_rewards"] == pytest.approx(row.turn_rewards)
        advantages = tensors["advantages"][k]
        for (start, stop), following in zip(row.turns, [*row.turns[1:], (None, None)], strict=True):
            assert len(set(advantages[start:stop].tolist())) == 1
            if following[0] is not None:
                assert not advantages[stop : following[0]].any()
                assert advantages[start] > advantages[following[0]], "rewards-to-go fall from turn to turn here"
