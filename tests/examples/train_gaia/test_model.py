"""The small model begins able to look back, and its optimiser does what it says."""

import pytest
import torch

from examples.train_gaia.model import LOOK_BACK, build_model, fold_output_biases
from examples.train_gaia.muon import Muon, _orthogonalise


class Tokenizer:
    eos_token_id, pad_token_id = 1, 0

    def __len__(self) -> int:
        return 300


@pytest.fixture(scope="module")
def model():
    return build_model(Tokenizer(), seed=3)


def test_two_heads_begin_by_looking_back(model):
    ids = torch.randint(2, 300, (4, 60), generator=torch.Generator().manual_seed(0))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        attention = model(ids, output_attentions=True).attentions[0]
    model.set_attn_implementation("sdpa")
    for head in range(LOOK_BACK):
        looked = attention[:, head, 20:].argmax(-1)
        wanted = torch.arange(20, 60) - (head + 1)
        assert (looked == wanted).float().mean() > 0.9


def test_output_biases_are_folded_without_any_effect():
    model = build_model(Tokenizer(), seed=3)
    ids = torch.randint(2, 300, (4, 60), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.bias.normal_(std=0.2)
        before = model(ids).logits.log_softmax(-1)
        fold_output_biases(model)
        assert (model(ids).logits.log_softmax(-1) - before).abs().max() < 1e-4
    assert not any(layer.self_attn.o_proj.bias.any() for layer in model.model.layers)


def test_the_seed_decides_the_weights_and_nothing_else(model):
    state = torch.random.get_rng_state()
    again, other = build_model(Tokenizer(), seed=3), build_model(Tokenizer(), seed=4)
    assert torch.equal(torch.random.get_rng_state(), state)
    same = [torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True)]
    assert all(same)
    assert not torch.equal(model.model.embed_tokens.weight, other.model.embed_tokens.weight)


@pytest.mark.parametrize("shape", [(32, 96), (96, 32)])
def test_an_update_is_nearly_orthogonal(shape):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(_orthogonalise(matrix))
    assert 0.5 < values.min() and values.max() < 1.3


def test_muon_finds_a_minimum():
    target = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
    weight = torch.nn.Parameter(torch.zeros(8, 6))
    optimiser = Muon([weight], lr=0.05)
    first = last = 0.0
    for step in range(200):
        loss = (weight - target).square().mean()
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        first, last = (loss.item() if step == 0 else first), loss.item()
    assert last < 0.05 * first
