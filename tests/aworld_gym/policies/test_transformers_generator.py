"""The local sampler against transformers' own generate and forward pass."""

import random

import pytest
import tiny_model
import torch

from aworld_gym.errors import ConfigError
from aworld_gym.policies.transformers import TransformersGenerator


@pytest.fixture(scope="module")
def model():
    return tiny_model.random_model(tiny_model.tokenizer())


def prompts(count, vocabulary, seed=0):
    rng = random.Random(seed)
    return [[rng.randrange(vocabulary) for _ in range(rng.randint(1, 30))] for _ in range(count)]


def teacher_forced(model, prompt, ids, temperature=1.0):
    with torch.no_grad():
        logits = model.eval()(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1] / temperature
    return logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_are_those_of_the_whole_sequence(model, temperature):
    stops = range(0, 60)  # a seventh of the vocabulary: rows end at different steps, so the batch is compacted
    sampler = TransformersGenerator(model, stop_ids=stops, temperature=temperature, max_new_tokens=25, seed=3)
    given = prompts(24, 300)
    sampled = sampler(given)
    lengths = {len(ids) for ids, _ in sampled}
    assert len(lengths) > 5
    for prompt, (ids, logprobs) in zip(given, sampled, strict=True):
        assert logprobs == pytest.approx(teacher_forced(model, prompt, ids, temperature), abs=1e-5)
        assert not set(ids[:-1]) & set(stops) and (ids[-1] in stops or len(ids) == 25)


def test_greedy_equals_transformers_generate(model):
    sampler = TransformersGenerator(model, stop_ids=[7], temperature=0.0, max_new_tokens=20)
    for prompt, (ids, logprobs) in zip(given := prompts(8, 300), sampler(given), strict=True):
        own = model.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False, eos_token_id=7)
        assert ids == own[0, len(prompt) :].tolist()
        assert logprobs == pytest.approx(teacher_forced(model, prompt, ids), abs=1e-5)


def test_each_row_has_its_own_limit(model):
    sampler = TransformersGenerator(model, stop_ids=[0], max_new_tokens=12, seed=0)
    limits = [1, 5, 12, 99, 2]
    lengths = [len(ids) for ids, _ in sampler(prompts(5, 300), limits)]
    assert all(length <= min(limit, 12) for length, limit in zip(lengths, limits, strict=True))
    assert lengths[0] == 1


def test_the_seed_decides(model):
    sampler, given = TransformersGenerator(model, stop_ids=[0], max_new_tokens=8, seed=5), prompts(6, 300)
    first, second = sampler(given), sampler(given)
    sampler.seed(5)
    assert sampler(given) == first != second
    torch.manual_seed(0)
    assert TransformersGenerator(model, stop_ids=[0], max_new_tokens=8, seed=5)(given) == first


def test_sampling_follows_the_policys_distribution(model):
    sampler = TransformersGenerator(model, stop_ids=[0], max_new_tokens=1, seed=1, max_batch=2000)
    counts = torch.bincount(
        torch.tensor([ids[0] for ids, _ in sampler([[5, 6]] * 2000)]), minlength=len(tiny_model.tokenizer())
    )
    with torch.no_grad():
        expected = model(torch.tensor([[5, 6]])).logits[0, -1].softmax(-1)
    assert 0.5 * (counts / 2000 - expected).abs().sum() < 0.25  # total variation; of 400 outcomes, by chance about 0.18


def test_large_batches_are_cut_and_the_order_kept(model):
    given = prompts(9, 300)
    whole = TransformersGenerator(model, stop_ids=[7], temperature=0.0, max_new_tokens=6)(given)
    parts = TransformersGenerator(model, stop_ids=[7], temperature=0.0, max_new_tokens=6, max_batch=4)(given)
    assert [ids for ids, _ in parts] == [ids for ids, _ in whole]


def test_training_mode_is_left_as_it_was(model):
    model.train()
    TransformersGenerator(model, stop_ids=[0], max_new_tokens=1)([[1]])
    assert model.training and not any(p.grad is not None for p in model.parameters())
    model.eval()


@pytest.mark.parametrize(
    ("settings", "call", "message"),
    [
        ({"stop_ids": []}, None, "no turn could ever end"),
        ({"stop_ids": [1], "temperature": -1.0}, None, "temperature >= 0"),
        ({"stop_ids": [1], "max_new_tokens": 0}, None, "max_new_tokens >= 1"),
        ({"stop_ids": [1]}, ([[]], None), "no empty prompt"),
        ({"stop_ids": [1]}, ([[1]], [0]), "positive limit"),
        ({"stop_ids": [1]}, ([[1]], [1, 2]), "one positive limit"),
    ],
)
def test_what_cannot_work_is_refused(model, settings, call, message):
    with pytest.raises(ConfigError, match=message):
        sampler = TransformersGenerator(model, **settings)
        sampler(*call)
