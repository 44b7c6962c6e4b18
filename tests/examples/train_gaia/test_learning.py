"""That learning happens at all: a few GRPO steps on the real env, from a stored warm start."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from transformers import AutoTokenizer

from aworld_gym.tokens import ChatCodec
from examples.train_gaia import train
from examples.train_gaia.evaluation import measure
from examples.train_gaia.settings import small_model
from examples.train_gaia.tokenizer import build_tokenizer

START = Path(__file__).parents[2] / "data" / "warm_start"
"""Made by ``tests/data/make_warm_start.py``."""


def test_the_stored_start_fits_the_env_of_today(tmp_path):
    """Its tokenizer and template are those that would be built now; else it has to be made anew."""
    stored, tools = AutoTokenizer.from_pretrained(START), train.offered_tools(small_model(tmp_path))
    built = build_tokenizer(tools)
    assert stored.chat_template == built.chat_template
    assert stored.get_vocab() == built.get_vocab()
    question = [{"role": "user", "content": "In the table zorrin, what is the highest net price?"}]
    assert ChatCodec(stored).prompt(question, tools) == ChatCodec(built).prompt(question, tools)


@pytest.mark.slow
def test_ten_steps_raise_greedy_success(tmp_path):
    settings = small_model(tmp_path, seed=1, steps=10, tasks=100, split="validation")

    def greedy(checkpoint: Path) -> float:
        codec = ChatCodec(AutoTokenizer.from_pretrained(checkpoint))
        tasks = settings.held_out[0]
        return measure(train.load(checkpoint), codec, tasks, sampled=False, limits=settings.limits).success

    before = greedy(START)
    result = train.train(START, settings, Console(file=io.StringIO()))
    after = greedy(result.checkpoint)
    assert result.counts["episodes"] == 640 and result.counts["invalid"] == 0
    assert after >= before + 0.2, f"greedy success went from {before:.2f} to {after:.2f}"
