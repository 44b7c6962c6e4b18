"""Episodes asked for turn by turn, beside the same episodes of a token rollout."""

import asyncio

import pytest
import tiny_model
from say_env import ENV_ID, SESSIONS
from say_sessions import sessions_fixture  # noqa: F401
from scripted_sampler import ScriptedSampler, echo_then_submit

from aworld_gym.errors import ConfigError
from aworld_gym.play import Item
from aworld_gym.token_policy import token_rollout
from aworld_gym.tokens import ChatCodec
from aworld_gym.trajectory import Journal, read_jsonl
from aworld_gym.turnwise import TurnwiseEpisode
from aworld_gym.types import Outcome


@pytest.fixture(scope="module")
def codec():
    return ChatCodec(tiny_model.tokenizer())


async def played(env, codec, sampler, item, **options):
    """One episode, as a framework would play it."""
    async with TurnwiseEpisode(env, codec, item, **{"max_tokens": 400, **options}) as episode:
        request = await episode.start()
        while request is not None:
            ((ids, logprobs),) = sampler([request.ids], [request.limit])
            request = await episode.sampled(ids, logprobs)
        return episode.result


async def test_the_same_ids_as_a_token_rollout(codec):
    items = [Item(k, k) for k in range(4)]
    whole = token_rollout(ENV_ID, codec, ScriptedSampler(codec, echo_then_submit), items, max_tokens=400)
    one_by_one = [await played(ENV_ID, codec, ScriptedSampler(codec, echo_then_submit), item) for item in items]
    assert [one.trajectory for one in one_by_one] == [one.trajectory for one in whole]
    assert [one.episode.total_reward for one in one_by_one] == [one.episode.total_reward for one in whole] == [1.0] * 4


def test_hooks_may_run_in_loops_that_come_and_go(codec):
    sampler = ScriptedSampler(codec, echo_then_submit)
    episode = TurnwiseEpisode(ENV_ID, codec, Item(0, 0), max_tokens=400)
    request = asyncio.run(episode.start())
    while request is not None:
        ((ids, logprobs),) = sampler([request.ids], [request.limit])
        request = asyncio.run(episode.sampled(ids, logprobs))
    asyncio.run(episode.aclose())
    assert episode.result.episode.outcome is Outcome.ANSWERED


async def test_a_spoiled_attempt_begins_again_from_its_prompt(codec, tmp_path):
    sampler, journal = ScriptedSampler(codec, echo_then_submit), Journal(tmp_path / "episodes.jsonl")
    result = await played("Test/SayStdio-v0", codec, sampler, Item(0, 0), journal=journal)  # its server dies of an echo
    journal.close()
    assert not result.episode.valid and result.attempts == 2
    assert len(sampler.batches) == 2 and sampler.batches[0] == sampler.batches[1]
    assert [episode.attempt for episode in read_jsonl(journal.path)] == [0, 1]


async def test_leaving_early_closes_the_env(codec):
    async with TurnwiseEpisode(ENV_ID, codec, Item(0, 0), max_tokens=400) as episode:
        assert await episode.start() is not None
        with pytest.raises(ConfigError, match="has not ended"):
            _ = episode.result


async def test_a_deadline_ends_an_episode_whose_sampler_is_slow(codec):
    async with TurnwiseEpisode(ENV_ID, codec, Item(0, 0), max_tokens=400, deadline_s=0.5) as episode:
        request = await episode.start()
        await asyncio.sleep(1)
        assert await episode.sampled(request.ids[-1:]) is None
        assert episode.result.episode.outcome is Outcome.TIMEOUT


async def test_calls_out_of_order(codec):
    async with TurnwiseEpisode(ENV_ID, codec, Item(0, 0), max_tokens=400) as episode:
        with pytest.raises(ConfigError, match="no turn was asked for"):
            await episode.sampled([1])
        await episode.start()
        with pytest.raises(ConfigError, match="starts once"):
            await episode.start()


async def test_what_cannot_be_reset_ends_without_a_turn(codec):
    SESSIONS.reset(broken=lambda number: True)
    async with TurnwiseEpisode(ENV_ID, codec, Item(0, 0), max_tokens=400, retries=1) as episode:
        assert await episode.start() is None
        result = episode.result
    assert result.trajectory is None and result.attempts == 2
    assert result.episode.outcome is Outcome.INFRA_FAILURE
