import asyncio
import pickle

import pytest

from aworld_gym.errors import ConfigError, InfraError, boundary, describe, did_you_mean


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"),
        OSError(2, "no such file"),
        ExceptionGroup("g", [ValueError("x"), KeyError("y")]),
        StopAsyncIteration(),
    ],
)
def test_anything_that_leaves_an_edge_is_in_the_vocabulary(error):
    with pytest.raises(InfraError) as caught, boundary("session_lost", server="s", delivered=False):
        raise error
    assert (caught.value.kind, caught.value.server, caught.value.delivered) == ("session_lost", "s", False)
    assert str(caught.value).startswith("session_lost [s]: ")
    assert caught.value.__cause__ is error


def test_our_own_errors_and_interrupts_pass():
    for error in (ConfigError("x"), InfraError("server_died", "x"), KeyboardInterrupt(), SystemExit()):
        with pytest.raises(type(error)) as caught, boundary("session_lost"):
            raise error
        assert caught.value is error
    group = BaseExceptionGroup("g", [KeyboardInterrupt(), ValueError("x")])
    with pytest.raises(BaseExceptionGroup), boundary("session_lost"):
        raise group


async def test_a_cancellation_that_was_asked_for_passes_and_another_does_not():
    async def cancelled_by_a_library():
        with boundary("session_lost"):
            raise asyncio.CancelledError

    with pytest.raises(InfraError, match="CancelledError"):
        await asyncio.create_task(cancelled_by_a_library())

    async def waits():
        with boundary("session_lost"):
            await asyncio.sleep(60)

    task = asyncio.create_task(waits())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_an_infra_error_survives_pickling():
    error = pickle.loads(pickle.dumps(InfraError("server_died", "gone", server="s", delivered=True)))
    assert (error.kind, str(error), error.delivered) == ("server_died", "server_died [s]: gone", True)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="unknown infrastructure failure 'oops'"):
        InfraError("oops", "x")


def test_describe_names_the_leaves_once():
    group = ExceptionGroup("g", [ValueError("x"), ExceptionGroup("h", [ValueError("x"), KeyError("y")])])
    assert describe(group) == "ValueError: x; KeyError: 'y'"
    assert len(describe(ValueError("x" * 9999))) == 500


def test_did_you_mean():
    assert did_you_mean("serach", ["search", "read"]) == " Did you mean 'search'?"
    assert did_you_mean("zzz", ["search"]) == ""
