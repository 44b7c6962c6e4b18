"""What the adapters share whose frameworks train with transformers' Trainer."""

import pytest

pytest.importorskip("accelerate")  # comes with them

import tiny_model
import torch
from transformers import GenerationConfig

from adapters.hf import sample

TOKENIZER = tiny_model.tokenizer()
PROMPTS = [[5, 6, 7], [9, 10, 11, 12], [3]]


@pytest.fixture(scope="module")
def model():
    return tiny_model.random_model(TOKENIZER).eval()


def sampled(model, generate=None, stops=frozenset({TOKENIZER.eos_token_id})):
    torch.manual_seed(1)
    pad, how = TOKENIZER.pad_token_id, {"do_sample": True, "max_new_tokens": 6, "top_k": 0, "temperature": 0.7}
    config = GenerationConfig(**how, eos_token_id=sorted(stops), pad_token_id=pad)
    return sample(model, PROMPTS, stops, pad=pad, temperature=0.7, generate=generate, generation_config=config)


def assert_are_the_models(model, rows):
    for prompt, (ids, logprobs) in zip(PROMPTS, rows, strict=True):
        logits = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1] / 0.7
        expected = logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()
        assert logprobs == pytest.approx(expected, abs=1e-5)


def test_log_probabilities_are_read_off_the_passes_of_generation(model):
    whole = sampled(model)
    assert_are_the_models(model, whole)
    stops = frozenset({whole[0][0][1]})
    ended = sampled(model, stops=stops)
    assert ended[0][0] == whole[0][0][:2] and len({len(ids) for ids, _ in ended}) > 1
    assert_are_the_models(model, ended)


@pytest.mark.parametrize("more", [1, 3])
def test_passes_beyond_the_last_id_change_nothing(model, more):
    """Where weights are spread over processes, those that are done go on until the last one is."""

    def synced(model, **settings):
        out = type(model).generate(model, **settings)
        for _ in range(more):
            model(input_ids=out[:, -1:])
        return out

    assert sampled(model, synced) == sampled(model)


def test_rows_that_were_mixed_up_do_not_pass_unseen(model):
    """They have the log-probabilities of what was fed, which the trainer's alarm compares with those of the rows."""

    def shifted(model, **settings):
        out = type(model).generate(model, **settings)
        return torch.cat([out[1:], out[:1]])

    rows = sampled(model, shifted)
    assert all(logprobs is not None for _, logprobs in rows)
    with pytest.raises(AssertionError):
        assert_are_the_models(model, rows)
