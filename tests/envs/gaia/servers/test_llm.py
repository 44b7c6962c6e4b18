"""The helpers that ask a language model, and transcription, against a stand-in that speaks OpenAI's format."""

import re

import pytest
from web_stand_in import Answer, StandIn, session_with

from aworld_gym.errors import ConfigError
from aworld_gym.types import EpisodeContext
from envs.gaia.servers import code, guard, llm, think, transcription
from envs.gaia.servers.settings import Settings

KEY = "sk-of-the-helper"


def completion(text):
    return Answer(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "stand-in-1",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text},
                    "finish_reason": "stop",
                    "logprobs": None,
                }
            ],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
    )


def with_model(server, stand_in, workspace, prefix="MCP"):
    names = {"BASE_URL": f"{stand_in.url}/v1", "API_KEY": KEY, "MODEL_NAME": "stand-in-1"}
    return session_with(server.SERVER, workspace, **{f"{prefix}_LLM_{name}": value for name, value in names.items()})


CALLS = [
    (think, "think_hard", {"question": "How many ways?", "context": "There are three doors."}, "Result: 6"),
    (guard, "review_reasoning", {"question": "How long?", "reasoning": "It is 12 km."}, "Verdict: check\n1. Source?"),
]


@pytest.mark.parametrize(("server", "tool", "arguments", "answer"), CALLS)
@pytest.mark.parametrize("own", [False, True])
async def test_the_model_is_asked(server, tool, arguments, answer, own, tmp_path):
    prefix = server.SERVER.name.upper() if own else "MCP"
    with StandIn(lambda request: completion(answer)) as stand_in:
        async with with_model(server, stand_in, tmp_path, prefix) as session:
            assert await session.ok(tool, **arguments) == answer
    (request,) = stand_in.requests
    assert request.path == "/v1/chat/completions" and request.headers["authorization"] == f"Bearer {KEY}"
    assert request.json["model"] == "stand-in-1" and request.json["max_tokens"] == llm.MAX_TOKENS
    system, user = request.json["messages"]
    assert system["content"] == server.SYSTEM and all(text in user["content"] for text in arguments.values())


@pytest.mark.parametrize(
    ("answer", "program"),
    [
        ("Here it is:\n```python\nprint(6 * 7)\n```\nIt prints 42.", "print(6 * 7)"),
        ("```\nx = 1\nprint(x)\n```", "x = 1\nprint(x)"),
        ("print('bare')", "print('bare')"),
    ],
)
async def test_programs_are_taken_out_of_their_fence(answer, program, tmp_path):
    with StandIn(lambda request: completion(answer)) as stand_in:
        async with with_model(code, stand_in, tmp_path) as session:
            assert await session.ok("write_code", task="six times seven", error="SyntaxError") == program
    assert "SyntaxError" in stand_in.requests[0].json["messages"][1]["content"]


@pytest.mark.parametrize(
    "answer", ["I cannot do that.", "```python\nprint(\n```", "```python\n" + "(" * 5000 + "\n```"]
)
async def test_what_is_no_program_is_not_handed_on(answer, tmp_path):
    with StandIn(lambda request: completion(answer)) as stand_in:
        async with with_model(code, stand_in, tmp_path) as session:
            assert "not valid Python" in await session.refused("write_code", task="x")


@pytest.mark.parametrize(
    ("answer", "message", "requests"),
    [
        (Answer({"error": {"message": f"Incorrect API key provided: {KEY}"}}, 401), "refused THINK_LLM_API_KEY", 1),
        (Answer({"error": {"message": f"no model for {KEY}"}}, 404), "HTTP 404): no model for [MCP_LLM_API_KEY]", 1),
        (Answer({"error": {"message": "slow down"}}, 429, headers={"Retry-After": "0.01"}), "limiting requests", 3),
        (Answer("", 500), "failure of its own (HTTP 500)", 3),
        (Answer("<html>gateway</html>"), "unexpected form|empty answer", 1),
        (Answer(b'{"choices": [', kind="application/json"), "unexpected form", 1),
        (Answer({"choices": []}), "empty answer", 1),
        (Answer({"choices": [{"index": 0}]}), "unexpected form|empty answer", 1),
        (completion(""), "empty answer", 1),
        (Answer("", 302, headers={"Location": "/elsewhere"}), "", None),
    ],
)
async def test_faults_of_the_endpoint(answer, message, requests, tmp_path):
    with StandIn(lambda request: answer) as stand_in:
        async with with_model(think, stand_in, tmp_path) as session:
            told = await session.refused("think_hard", question="x")
    assert any(part in told for part in message.split("|")) and KEY not in told and stand_in.host not in told
    assert requests is None or len(stand_in.requests) == requests


async def test_a_slow_endpoint_ends_at_the_deadline(tmp_path, monkeypatch):
    with StandIn(lambda request: Answer({}, delay_s=2.0)) as stand_in:
        model = llm.Endpoint(
            Settings({"MCP_LLM_BASE_URL": stand_in.url, "MCP_LLM_API_KEY": KEY, "MCP_LLM_MODEL_NAME": "m"}),
            "THINK",
            timeout_s=0.3,
        )
        with pytest.raises(llm.ToolFault, match=r"did not answer within 0.3 s"):
            await model.ask("system", "text")


async def test_nobody_there(tmp_path):
    with StandIn(lambda request: Answer()) as stand_in:
        pass
    async with with_model(think, stand_in, tmp_path) as session:
        assert "THINK_LLM_BASE_URL cannot be reached" in await session.refused("think_hard", question="x")


async def test_too_long_a_text_is_not_sent(tmp_path):
    with StandIn(lambda request: completion("x")) as stand_in:
        async with with_model(think, stand_in, tmp_path) as session:
            long = "x" * (llm.MAX_INPUT - 10)
            assert "too long" in await session.refused("think_hard", question=long, context=long)
    assert stand_in.requests == []


@pytest.mark.parametrize("server", [think, guard, code, transcription])
def test_what_is_missing_is_named(server, tmp_path):
    prefix = server.SERVER.variables[0].name.removesuffix("_LLM_BASE_URL")
    given = {"MCP_LLM_BASE_URL": "http://127.0.0.1:1/v1", "MCP_LLM_MODEL_NAME": "m"}
    with pytest.raises(ConfigError, match=f"{prefix}_LLM_API_KEY is not set. Set MCP_LLM_BASE_URL, MCP_LLM_API_KEY"):
        server.SERVER.make_server(EpisodeContext(tmp_path, {}), settings=Settings(given))
    server.SERVER.check(Settings(given | {"MCP_LLM_API_KEY": KEY}))


# ---- transcription -----------------------------------------------------------------------------------------


async def test_speech_is_written_down_and_paged(tmp_path):
    (tmp_path / "talk.WAV").write_bytes(b"RIFF-sound")
    words = "word " * 1500
    with StandIn(lambda request: Answer({"text": words})) as stand_in:
        async with with_model(transcription, stand_in, tmp_path, "AUDIO") as session:
            first = await session.ok("transcribe_audio", path="talk.WAV", language="en")
            second = await session.ok("transcribe_audio", path="talk.WAV", language="en", page=2)
    assert "[page 1 of 2; next: page=2]" in first and "[page 2 of 2]" in second
    (request,) = stand_in.requests
    assert request.path == "/v1/audio/transcriptions"
    form = request.body
    assert b"RIFF-sound" in form and b'name="model"' in form and b"stand-in-1" in form
    assert re.search(rb'name="file"; filename="sound.wav"', form) and b'name="language"' in form


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("notes.txt", "is no sound file"),
        ("none.mp3", "there is no 'none.mp3'"),
        ("../outside.mp3", "only files of the workspace"),
        ("link.mp3", "links and special files are not followed"),
        ("empty.mp3", "is empty"),
    ],
)
async def test_only_sound_files_of_the_workspace_leave_it(path, message, tmp_path):
    (tmp_path.parent / "outside.mp3").write_bytes(b"x")
    (tmp_path / "link.mp3").symlink_to(tmp_path.parent / "outside.mp3")
    (tmp_path / "empty.mp3").touch()
    with StandIn(lambda request: Answer({"text": "x"})) as stand_in:
        async with with_model(transcription, stand_in, tmp_path) as session:
            assert message in await session.refused("transcribe_audio", path=path)
    assert stand_in.requests == []


async def test_a_transcription_in_another_form_is_refused(tmp_path):
    (tmp_path / "a.mp3").write_bytes(b"x")
    with StandIn(lambda request: Answer({"segments": []})) as stand_in:
        async with with_model(transcription, stand_in, tmp_path) as session:
            assert "unexpected form" in await session.refused("transcribe_audio", path="a.mp3")
