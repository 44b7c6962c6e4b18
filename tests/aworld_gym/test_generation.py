"""The pool between episodes on the loop and the thread that generates."""

import asyncio
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aworld_gym.generation import GenerationPool
from aworld_gym.toolchain import loop

episodes = st.lists(st.lists(st.floats(0, 0.02), min_size=1, max_size=4), min_size=1, max_size=6)


def run(pool, turns, generate, rendezvous=None):
    """Episodes that generate after each of their sleeps; what each was given."""

    async def episode(key, sleeps):
        got = []
        for turn, seconds in enumerate(sleeps):
            await asyncio.sleep(seconds)
            got.append(await pool.generate(key, [key, turn], limit=turn + 1))
        pool.leave(key)
        return got

    async def everything():
        try:
            return await asyncio.gather(*(episode(k, sleeps) for k, sleeps in enumerate(turns)))
        finally:
            pool.close()

    pool.enter(*range(len(turns)))
    job = loop.submit(everything())
    pool.serve(generate, rendezvous)
    return job.result(timeout=10)


@settings(max_examples=25, deadline=None)
@given(episodes, st.sampled_from([0.0, 0.005, 5.0]))
def test_everyone_is_given_what_was_sampled_for_them(turns, straggler_s):
    pool, batches, threads = GenerationPool(straggler_s), [], set()

    def generate(prompts, limits):
        threads.add(threading.current_thread())
        batches.append([prompt[0] for prompt in prompts])
        assert [prompt[1] + 1 for prompt in prompts] == limits
        return [([*prompt, 99], None) for prompt in prompts]

    got = run(pool, turns, generate)
    assert got == [[([k, turn, 99], None) for turn in range(len(sleeps))] for k, sleeps in enumerate(turns)]
    assert all(batch == sorted(set(batch)) for batch in batches), "in the order of the keys, each once"
    assert threads == {threading.current_thread()}
    assert pool.stats.requests == sum(map(len, turns)) and pool.stats.batches == len(batches)
    if straggler_s == 5.0:
        assert len(batches) == max(map(len, turns)) and pool.stats.late == 0, "lock step"


def test_an_episode_that_is_late_is_waited_for_once():
    pool, batches = GenerationPool(straggler_s=0.2), []

    def generate(prompts, limits):
        batches.append([prompt[0] for prompt in prompts])
        return [(prompt, None) for prompt in prompts]

    async def everything():
        ahead = asyncio.Event()

        async def quick():
            for _ in range(4):
                await pool.generate(0, [0], limit=1)
            ahead.set()
            await pool.generate(0, [0], limit=1)
            pool.leave(0)

        async def late():
            await ahead.wait()
            await pool.generate(1, [1], limit=1)
            pool.leave(1)

        try:
            async with asyncio.timeout(20):
                await asyncio.gather(quick(), late())
        finally:
            pool.close()

    pool.enter(0, 1)
    job = loop.submit(everything())
    pool.serve(generate)
    job.result(timeout=10)
    assert batches[:4] == [[0]] * 4 and sorted(sum(batches[4:], [])) == [0, 1]
    assert pool.stats.late == 1, "once, and not in each of the batches that went without it"


def test_an_error_of_generate_reaches_caller_and_episodes():
    pool, error = GenerationPool(), ValueError("out of memory")

    def generate(prompts, limits):
        raise error

    with pytest.raises(ValueError, match="out of memory"):
        run(pool, [[0.0], [0.01]], generate)
    with pytest.raises(ValueError, match="out of memory"):
        loop.run(pool.generate(0, [1], 1))


def test_a_key_waits_once():
    pool = GenerationPool()
    first = loop.submit(pool.generate(0, [1], 1))
    with pytest.raises(RuntimeError, match="it already waits"):
        loop.run(pool.generate(0, [1], 1))
    first.cancel()
    pool.close()
    with pytest.raises(RuntimeError, match="the pool is closed"):
        loop.run(pool.generate(1, [1], 1))


def test_too_few_samples_are_an_error():
    with pytest.raises(RuntimeError, match="given 2 prompts and returned 1"):
        run(GenerationPool(), [[0.0], [0.0]], lambda prompts, limits: [([1], None)])


def test_a_process_without_work_takes_part_in_the_rounds_of_others():
    pool, rounds, batches = GenerationPool(straggler_s=0.05), [], []

    def rendezvous(alive, waiting):
        rounds.append((alive, waiting))
        if len(rounds) == 3:
            pool.close()
        return len(rounds) < 5, len(rounds) in (2, 4)

    pool.enter(0)  # an episode that never comes: its tool hangs
    pool.serve(lambda prompts, limits: batches.append(prompts) or [], rendezvous)
    assert rounds == [(True, False)] * 3 + [(False, False)] * 2
    assert batches == [[], []]


def test_a_window_is_no_negative_time():
    with pytest.raises(ValueError, match="at least 0 seconds, got -1"):
        GenerationPool(-1)
