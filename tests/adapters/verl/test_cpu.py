"""The rollout server of CPU runs, without Ray: batches, seeds, stops, limits, log-probabilities, new weights."""

import asyncio

import pytest
import tiny_model
import torch
from transformers import AutoModelForCausalLM

from adapters.verl import cpu


@pytest.fixture
def server(untaught):
    return cpu.TransformersServer(str(untaught), 300)


def params(seed, **more):
    return {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "logprobs": True, "max_tokens": 12, "seed": seed, **more}


async def sampled(server, prompts, settings):
    calls = (server.generate("r", ids, p) for ids, p in zip(prompts, settings, strict=True))
    return await asyncio.gather(*calls)


PROMPTS = [[5, 6, 7], [9] * 40, [11, 12], [20] * 7]


async def test_a_batch_gives_what_each_request_would_get_alone(server):
    together = await sampled(server, PROMPTS, [params(k) for k in range(4)])
    for k, ids in enumerate(PROMPTS):
        (alone,) = await sampled(server, [ids], [params(k)])
        assert alone.token_ids == together[k].token_ids
        assert torch.allclose(torch.tensor(alone.log_probs), torch.tensor(together[k].log_probs), atol=1e-5)
    assert len({tuple(out.token_ids) for out in together}) == 4


async def test_log_probabilities_are_the_models(server, untaught):
    model = AutoModelForCausalLM.from_pretrained(untaught, dtype=torch.float32).eval()
    for temperature in (1.0, 0.7):
        settings = [params(3 + k, temperature=temperature) for k in range(4)]
        for ids, out in zip(PROMPTS, await sampled(server, PROMPTS, settings), strict=True):
            with torch.no_grad():
                logits = model(torch.tensor([ids + out.token_ids])).logits[0, len(ids) - 1 : -1] / temperature
            expected = logits.log_softmax(-1).gather(1, torch.tensor(out.token_ids)[:, None])[:, 0]
            assert torch.allclose(torch.tensor(out.log_probs), expected, atol=1e-5)


async def test_stops_limits_and_truncation(server):
    (free,) = await sampled(server, [PROMPTS[0]], [params(1)])
    stop = free.token_ids[4]
    (out,) = await sampled(server, [PROMPTS[0]], [params(1, stop_token_ids=[stop])])
    assert out.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]
    short, greedy = await sampled(server, PROMPTS[:2], [params(1, max_tokens=2), params(1, temperature=0)])
    assert short.token_ids == free.token_ids[:2]
    (one,) = await sampled(server, PROMPTS[1:2], [params(7, top_k=1)])
    (other,) = await sampled(server, PROMPTS[1:2], [params(8, top_p=1e-6)])
    assert one.token_ids == other.token_ids == greedy.token_ids, "one candidate left: greedy"
    (last,) = await sampled(server, [[5] * 299], [params(1)])
    assert len(last.token_ids) == 1, "the context is full"


async def test_weights_are_taken_whole_or_not_at_all(server):
    other = tiny_model.random_model(tiny_model.tokenizer(), seed=1)
    before, _ = await sampled(server, PROMPTS[:2], [params(1)] * 2)
    state = other.state_dict()
    state.pop("lm_head.weight", None)  # tied
    await server.update_weights(state, 7)
    after, _ = await sampled(server, PROMPTS[:2], [params(1)] * 2)
    assert before.token_ids != after.token_ids and after.extra_fields["global_steps"] == 7
    with torch.no_grad():
        expected = other(torch.tensor([PROMPTS[0]])).logits[0, -1].log_softmax(-1)[after.token_ids[0]]
    assert after.log_probs[0] == pytest.approx(expected.item(), abs=1e-5), "the tied head is the new one too"
    with pytest.raises(ValueError, match="do not fit"):
        await server.update_weights({"nonsense": torch.zeros(1)}, 8)


async def test_a_failing_batch_fails_all_its_requests(server, monkeypatch):
    def broken(*args):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(server, "_batch", broken)
    calls = [server.generate("r", ids, params(1)) for ids in PROMPTS]
    assert all(isinstance(e, RuntimeError) for e in await asyncio.gather(*calls, return_exceptions=True))
