"""An episode for frameworks that own the loop of turns: it goes on or ends, in time, and never raises."""

import asyncio
import functools
import time

import gymnasium as gym
import pytest
import tiny_model
from say_env import ENV_ID, SESSIONS
from say_sessions import sessions_fixture  # noqa: F401
from scripted_sampler import ScriptedSampler, echo_then_submit

from adapters import turnwise
from adapters.common import EnvEpisode, Journals, TurnwiseOptions, env_spec, task_rows
from aworld_gym.play import Item
from aworld_gym.tokens import ChatCodec
from aworld_gym.trajectory import read_jsonl
from aworld_gym.turnwise import TurnwiseEpisode


@pytest.fixture(scope="module")
def codec():
    return ChatCodec(tiny_model.tokenizer())


@pytest.fixture
def episode(codec, tmp_path):
    """A function that makes one; it is written to ``episodes.0.jsonl``."""
    journals = Journals.into(tmp_path)

    def episode(seed=0, env=ENV_ID, max_tokens=400, **options):
        (row,) = task_rows(env_spec(env), [seed])
        return EnvEpisode(
            row,
            Item(0, seed, 0, f"0/{seed}"),
            codec,
            TurnwiseOptions(**options),
            max_tokens=max_tokens,
            max_context=None,
            journal=functools.partial(journals.free, "train"),
            version=3,
        )

    yield episode
    journals.close()


def sampler(codec, **options):
    script = ScriptedSampler(codec, echo_then_submit, **options)

    async def sample(request, turn):
        return script([request.ids], [request.limit])[0]

    return sample


async def test_played_whole(episode, codec, tmp_path):
    played = await episode().play(sampler(codec))
    assert played.episode.episode.valid and len(played.episode.trajectory.turns) == 2
    assert played.metrics["env/turns"] == 2.0 and played.metrics["time/env_s"] > 0 and played.generate_s > 0
    (record,) = read_jsonl(tmp_path / "episodes.0.jsonl")
    assert record.group_id == "0/0" and {s.sampled["model_version"] for s in record.steps} == {"3"}


async def test_an_env_that_never_answers_is_given_up(episode, codec, tmp_path, monkeypatch):
    """Should anything hang beside the package's own deadlines, the others go on."""

    async def hangs(self):
        await asyncio.sleep(60)

    monkeypatch.setattr(TurnwiseEpisode, "start", hangs)
    monkeypatch.setattr(turnwise, "SETTLE_S", 0.2)
    began = time.monotonic()
    one = episode(retries=0, deadline_s=0.3)
    assert await one.start() is None and time.monotonic() - began < 10
    assert not one.result.episode.valid and one.result.trajectory is None
    await one.aclose()
    (record,) = read_jsonl(tmp_path / "episodes.0.jsonl")
    assert record.error == "the episode did not go on within 0.5 s" and not record.valid


@pytest.mark.parametrize("fault", ["raises", "hangs"])
async def test_a_sampler_that_fails(episode, codec, tmp_path, fault):
    async def sample(request, turn):
        if fault == "hangs":
            await asyncio.sleep(60)
        raise ConnectionError("the server is gone")

    played = await episode(deadline_s=3.0 if fault == "hangs" else 60.0).play(sample)  # the reset takes its time too
    assert not played.episode.episode.valid and played.metrics["env/invalid"] == 1.0
    *_, last = read_jsonl(tmp_path / "episodes.0.jsonl")
    said = {
        "hangs": "TimeoutError: a turn was not sampled within 3.0 s",
        "raises": "ConnectionError: the server is gone",
    }
    assert not last.valid and last.error == said[fault]


async def test_a_row_that_names_no_env(episode, codec, tmp_path):
    one = episode()
    one._row = {"seed": 1}
    played = await one.play(sampler(codec))
    (record,) = read_jsonl(tmp_path / "episodes.0.jsonl")
    assert not played.episode.episode.valid and record.error == "KeyError: 'env'"


async def test_a_prompt_that_leaves_no_room_is_no_measurement(episode, codec):
    one = episode()
    one._bounds["max_context"] = 3
    played = await one.play(sampler(codec))
    assert not played.episode.episode.valid and "leaves no room for a turn" in played.episode.episode.error


async def test_log_probabilities_that_do_not_fit_count_as_none(episode, codec):
    one = episode()
    request = await one.start()
    script = ScriptedSampler(codec, echo_then_submit)
    while request is not None:
        ids, logprobs = script([request.ids], [request.limit])[0]
        request = await one.sampled(ids, logprobs[:-1])
    assert one.result.trajectory.logprobs is None and one.result.episode.valid
    await one.aclose()


async def test_concurrency_is_an_event_loops(episode, codec):
    SESSIONS.reset(slow=lambda number: 0.2)
    began = time.monotonic()
    await asyncio.gather(*(episode(seed, gym.make(ENV_ID), concurrency=1).play(sampler(codec)) for seed in range(3)))
    assert time.monotonic() - began > 0.6
