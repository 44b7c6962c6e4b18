"""The small model's tokenizer: cut so that copying is easy, the same every time, fit for the codec."""

import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from gaia_schemas import TOOLS

from aworld_gym.tokens import ChatCodec
from envs.gaia import mini
from examples.train_gaia.tokenizer import build_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(TOOLS)


def pieces(tokenizer, text: str) -> list[str]:
    return [tokenizer.decode([i]) for i in tokenizer.encode(text, add_special_tokens=False)]


@pytest.mark.parametrize("split", mini.SPLITS)
@pytest.mark.parametrize("before", ["", " ", "\n", '"'])
def test_a_word_is_its_two_syllables_wherever_it_stands(tokenizer, split, before):
    for word in mini._vocabulary(split)[0]:
        cut = pieces(tokenizer, f"{before}{word} 47")
        assert cut[-4:] == [word[:3], word[3:], " 4", "7"] and "".join(cut[:-4]) == before


def test_values_follow_names_without_a_token_between(tokenizer):
    assert pieces(tokenizer, "zorrin_41.csv") == ["zor", "rin", "_4", "1", ".", "csv"]
    assert pieces(tokenizer, "zorrin 41\nmallek 20") == ["zor", "rin", " 4", "1", "\n", "mal", "lek", " 2", "0"]


def test_the_prompt_is_short_and_names_the_tools(tokenizer):
    codec = ChatCodec(tokenizer)
    codec.self_check()
    lengths = []
    for seed in range(50):
        task = mini.MiniTasks().sample(np.random.default_rng(seed))
        ids = codec.prompt([{"role": "user", "content": task.prompt}], TOOLS)
        assert task.prompt in tokenizer.decode(ids) and "read_table(path)\n" in tokenizer.decode(ids)
        lengths.append(len(ids))
    assert max(lengths) <= 80


def test_any_text_survives(tokenizer):
    for text in ("Größe 12 €\n\t", "日本語", "\x00\x7f", "a_b-c 007 1.5e-3"):
        assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_it_is_the_same_in_every_process(tokenizer):
    code = (
        "import json, sys; from examples.train_gaia.tokenizer import build_tokenizer; "
        "print(build_tokenizer(json.loads(sys.argv[1])).backend_tokenizer.to_str())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, json.dumps(TOOLS)],
        env=os.environ | {"PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = tokenizer.backend_tokenizer.to_str()
    assert hashlib.sha256(run.stdout.strip().encode()).digest() == hashlib.sha256(here.encode()).digest()
