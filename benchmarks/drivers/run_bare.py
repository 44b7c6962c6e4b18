"""Floors of workload noop-4: hand-written loops, no framework.

    run_bare.py URL function|mcp [--no-llm]

``function``: the OpenAI client, and the tool called directly. ``mcp``: an MCP session in memory for each episode.
Without the model the calls are made one after another.
"""

import json
import sys
from contextlib import asynccontextmanager

import measure
import noop_tool


def endpoint(url):
    """The OpenAI client as it comes: one with larger limits, or on plain httpx, takes more CPU."""
    from openai import AsyncOpenAI

    return AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=120)


async def loop(client, call) -> int:
    """One episode; how many tools were called. Without a client, the calls alone."""
    if client is None:
        for x in range(measure.TURNS):
            await call("noop", {"x": x})
        return measure.TURNS
    messages, made = [{"role": "user", "content": measure.PROMPT}], 0
    while True:
        reply = await client.chat.completions.create(model="mock", messages=messages, tools=[noop_tool.SCHEMA])
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return made
        for wanted in message.tool_calls:
            text = await call(wanted.function.name, json.loads(wanted.function.arguments))
            messages.append({"role": "tool", "tool_call_id": wanted.id, "content": text})
            made += 1


@asynccontextmanager
async def session():
    """An MCP session with a server of its own, in memory."""
    try:
        from mcp import Client
    except ImportError:
        from mcp.shared.memory import create_connected_server_and_client_session

        async with create_connected_server_and_client_session(noop_tool.mcp_server()._mcp_server) as opened:
            yield opened
    else:
        async with Client(noop_tool.mcp_server()) as opened:
            yield opened


async def main() -> None:
    """Serve orders."""
    url, system, *rest = sys.argv[1:]
    client = None if "--no-llm" in rest else endpoint(url)

    async def direct(name, arguments):
        return await noop_tool.noop(**arguments)

    async def with_function(number):
        return await loop(client, direct)

    async def with_mcp(number):
        async with session() as opened:

            async def call(name, arguments):
                result = await opened.call_tool(name, arguments)
                return "".join(block.text for block in result.content)

            return await loop(client, call)

    episode = {"function": with_function, "mcp": with_mcp}[system]
    await measure.serve(measure.each(episode), ["openai", "mcp"])


if __name__ == "__main__":
    measure.run(main)
