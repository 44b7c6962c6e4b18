"""E2B against a stand-in that speaks its sandbox API and its interpreter's lines of JSON."""

import json

import pytest
from web_stand_in import Answer, StandIn, session_with

from envs.gaia.servers.e2b import SERVER, report

KEY = "e2b-key-1"


class E2b:
    """Starts sandboxes, runs code with ``execute``, and loses sandboxes when told."""

    def __init__(self, execute):
        self.execute, self.started, self.ended, self.gone = execute, [], [], False

    def __call__(self, request):
        if request.path == "/sandboxes" and request.method == "POST":
            if request.headers.get("x-api-key") != KEY:
                return Answer({"code": 401, "message": "Invalid API key"}, 401)
            assert request.json == {"templateID": "code-interpreter-v1", "timeout": 600}
            self.started.append(f"sbx{len(self.started)}")
            self.gone = False
            return Answer({"sandboxID": self.started[-1], "templateID": "t", "clientID": "c", "envdVersion": "0.2",
                           "envdAccessToken": "token-1", "trafficAccessToken": None, "domain": None}, 201)  # fmt: skip
        if request.method == "DELETE":
            self.ended.append(request.path.removeprefix("/sandboxes/"))
            return Answer(b"", 204)
        assert request.path == f"/{self.started[-1]}/49999/e2b.app/execute"
        assert request.headers["x-access-token"] == "token-1" and "x-api-key" not in request.headers
        if self.gone:
            return Answer({"message": "The sandbox was not found", "code": 502}, 502)
        events = self.execute(request.json["code"])
        return Answer(
            "\n".join(map(json.dumps, events)) if isinstance(events, list) else events, kind="application/json"
        )


def session_on(stand_in, tmp_path, key=KEY):
    address = f"{stand_in.url}/{{sandbox}}/{{port}}/{{domain}}"
    return session_with(SERVER, tmp_path, E2B_API_KEY=key, E2B_BASE_URL=stand_in.url, E2B_SANDBOX_BASE_URL=address)


def printed(code):
    return [
        {"type": "number_of_executions", "execution_count": 1},
        {"type": "stdout", "text": "hello\n", "timestamp": 1},
        {"type": "stderr", "text": "careful\n", "timestamp": 2},
        {"type": "result", "text": code, "is_main_result": True},
        {"type": "end_of_execution"},
    ]


async def test_code_runs_in_one_sandbox_that_is_ended(tmp_path):
    e2b = E2b(printed)
    with StandIn(e2b) as stand_in:
        async with session_on(stand_in, tmp_path) as session:
            assert await session.ok("run_code_online", code="6 * 7") == "hello\ncareful\n6 * 7"
            await session.ok("run_code_online", code="1")
            assert e2b.started == ["sbx0"] and e2b.ended == []
    assert e2b.ended == ["sbx0"]


async def test_a_sandbox_that_has_ended_is_replaced(tmp_path):
    e2b = E2b(printed)
    with StandIn(e2b) as stand_in:
        async with session_on(stand_in, tmp_path) as session:
            await session.ok("run_code_online", code="1")
            e2b.gone = True
            assert "hello" in await session.ok("run_code_online", code="2")
    assert e2b.started == ["sbx0", "sbx1"]


async def test_errors_of_the_code_are_told(tmp_path):
    events = [{"type": "error", "name": "ZeroDivisionError", "value": "division by zero", "traceback": "long"}]
    with StandIn(E2b(lambda code: events)) as stand_in:
        async with session_on(stand_in, tmp_path) as session:
            assert await session.ok("run_code_online", code="1/0") == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize("reply", ["not json", '"text"\n', "[1]"])
async def test_replies_in_another_form_are_refused(reply, tmp_path):
    with StandIn(E2b(lambda code: reply)) as stand_in:
        async with session_on(stand_in, tmp_path) as session:
            assert "unexpected form" in await session.refused("run_code_online", code="1")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer({"message": "no more sandboxes"}, 429), "limiting requests"),
        (Answer({"message": "bad"}, 500), "failure of its own"),
        (Answer({"sandboxID": "a/../b@evil.example"}, 201), "unexpected form"),
        (Answer({"sandboxID": "ok", "domain": "evil.example/x"}, 201), "unexpected form"),
        (Answer([], 201), "unexpected form"),
    ],
)
async def test_sandboxes_that_do_not_start(answer, message, tmp_path):
    with StandIn(lambda request: answer) as stand_in:
        async with session_on(stand_in, tmp_path) as session:
            assert message in await session.refused("run_code_online", code="1")
    assert len(stand_in.requests) == 1  # never a second sandbox by a repeated request


async def test_a_wrong_key_is_named(tmp_path):
    with StandIn(E2b(printed)) as stand_in:
        async with session_on(stand_in, tmp_path, "wrong-key-1") as session:
            assert "E2B_API_KEY may be wrong" in await session.refused("run_code_online", code="1")


def test_pictures_are_named_and_long_output_is_cut():
    assert report([{"type": "result", "png": "iVBO", "html": ""}]) == "png"
    assert report([]) == "(no output)"
    assert len(report([{"type": "stdout", "text": "x" * 10**6}])) == 6000
