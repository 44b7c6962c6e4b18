"""The warm start: the same every time, teaching what it says it teaches; and its cache."""

import dataclasses

import pytest
import torch
from gaia_schemas import TOOLS

from aworld_gym.tokens import ChatCodec
from envs.gaia import mini
from examples.train_gaia import cache
from examples.train_gaia.model import build_model
from examples.train_gaia.tokenizer import build_tokenizer
from examples.train_gaia.warm import WarmSettings, demonstrations, drill, warm_start

SHORT = WarmSettings(seed=5, drill_steps=3, imitation_steps=4, batch=2, drill_tokens=200)


@pytest.fixture(scope="module")
def codec():
    return ChatCodec(build_tokenizer(TOOLS))


def test_it_learns_and_the_seed_decides_it(codec):
    losses: list[list[float]] = [[], []]
    states = []
    for run in losses:
        model = build_model(codec.tokenizer, seed=5)
        warm_start(model, codec, TOOLS, SHORT, lambda step, loss, run=run: run.append(loss))
        states.append(model.state_dict())
    assert losses[0] == losses[1] and len(losses[0]) == SHORT.steps
    assert all(torch.equal(a, b) for a, b in zip(states[0].values(), states[1].values(), strict=True))
    assert losses[0][-1] < losses[0][SHORT.drill_steps]


def test_a_drill_repeats_every_string_in_pieces(codec):
    ids, mask = drill(codec, WarmSettings(), 100)
    half = ids.shape[1] // 2
    assert torch.equal(ids[:, :half].sort(dim=1).values, ids[:, half:].sort(dim=1).values)
    assert not mask[:, :half].any() and 0.5 < mask[:, half:].float().mean() < 1
    for row, trained in zip(ids.tolist(), mask.tolist(), strict=True):
        follows = dict(zip(row[:half], row[1:half], strict=False))
        for at in range(half, len(row)):
            if trained[at]:
                assert follows[row[at - 1]] == row[at]
    assert torch.equal(ids, drill(codec, WarmSettings(), 100)[0])


def test_the_rate_rises_in_each_phase_and_falls_at_the_end():
    settings = WarmSettings(drill_steps=120, imitation_steps=400, decay=0.5)
    rates = [settings.rate(step) for step in range(1, settings.steps + 1)]
    assert rates[0] == 0.05 and rates[19] == rates[119] == 1.0
    assert rates[120] == 0.1 and rates[129] == rates[319] == 1.0
    assert rates[-1] == pytest.approx(0.05) and sorted(rates[319:], reverse=True) == rates[319:]


def test_the_demonstrator_is_the_hurried_one(codec):
    """With both short cuts always taken, every demonstration takes them."""
    stream = demonstrations(codec, TOOLS, WarmSettings(first=1.0, skip=1.0))
    for _ in range(20):
        ids, _ = next(stream)
        text = codec.tokenizer.decode(ids)
        listing = text.split("<|im_start|>tool\n")[1]
        assert f'"path": "{listing.split(" ")[0]}"' in text and '"calculate"' not in text


class TestCache:
    def test_a_checkpoint_is_found_again_under_its_key_only(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        made = tmp_path / "made"
        made.mkdir()
        (made / "config.json").write_text("{}")
        name = cache.key(SHORT, TOOLS)
        assert cache.find(name) is None
        kept = cache.keep(made, name)
        assert cache.find(name) == kept and (kept / "config.json").read_text() == "{}"
        assert cache.keep(made, name) == kept
        assert [p.name for p in kept.parent.iterdir()] == [name]

    def test_the_key_follows_everything_that_decides_the_weights(self, monkeypatch):
        name = cache.key(SHORT, TOOLS)
        assert name == cache.key(dataclasses.replace(SHORT), TOOLS)
        others = [dataclasses.replace(SHORT, seed=6), dataclasses.replace(SHORT, skip=0.4)]
        keys = {name, *(cache.key(other, TOOLS) for other in others), cache.key(SHORT, TOOLS[:3])}
        monkeypatch.setattr(cache, "version", lambda package: "0")
        keys.add(cache.key(SHORT, TOOLS))
        monkeypatch.undo()
        monkeypatch.setattr(cache, "_SOURCES", cache._SOURCES[1:])
        keys.add(cache.key(SHORT, TOOLS))
        assert len(keys) == 6

    def test_it_covers_every_module_that_the_warm_start_uses(self):
        """A module of ours that the warm start imports, but that the key leaves out, would serve stale weights."""
        import examples.train_gaia.warm as warm

        used = {value.__module__ for value in vars(warm).values() if hasattr(value, "__module__")}
        used |= {value.__name__ for value in vars(warm).values() if type(value).__name__ == "module"}
        ours = {name for name in used if name.startswith(("examples.", "envs."))}
        assert mini.__name__ in ours and ours <= set(cache._SOURCES)
