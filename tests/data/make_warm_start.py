"""Makes ``tests/data/warm_start``: ``python tests/data/make_warm_start.py`` (about three minutes of one core).

A small model after its warm start, from a demonstrator in more of a hurry than the recipe's: it takes each short cut
six times in ten, so that the model's likeliest moves are the wrong ones, and learning shows in a few steps. To be
made anew when the mini tasks, the tokenizer, the chat template or the model change.
"""

import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

TARGET = Path(__file__).parent / "warm_start"


def main() -> None:
    """Build, warm up and save."""
    from rich.console import Console

    from aworld_gym.tokens import ChatCodec
    from examples.train_gaia import train
    from examples.train_gaia.model import build_model
    from examples.train_gaia.progress import bar
    from examples.train_gaia.settings import small_model
    from examples.train_gaia.tokenizer import build_tokenizer
    from examples.train_gaia.warm import warm_start

    settings = small_model(TARGET, seed=1)
    warm = replace(settings.warm, first=0.6, skip=0.6)
    tools = train.offered_tools(settings)
    tokenizer = build_tokenizer(tools)
    model = build_model(tokenizer, seed=warm.seed)
    with bar(Console(stderr=True), "warm start", warm.steps) as shown:
        warm_start(model, ChatCodec(tokenizer), tools, warm, lambda step, loss: shown.advance(f"loss {loss:.3f}"))
    model.save_pretrained(TARGET)
    tokenizer.save_pretrained(TARGET)


if __name__ == "__main__":
    main()
