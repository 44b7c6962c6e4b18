"""The servers that the server scenarios of MCP's conformance suite ask for, as far as they are about tools."""

from __future__ import annotations

import asyncio
import base64
import io
import wave
from typing import Any

from host_tools import PIXEL
from mcp.server.lowlevel.server import Server
from mcp.server.mcpserver import Context
from mcp.types import (
    AudioContent,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ListToolsResult,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    Tool,
)
from pydantic import BaseModel

from aworld_gym.toolchain.compat import new_server

CONFIG = {
    "mcpServers": {
        "contents": {"python": "conformance_tools:make"},
        "schemas": {"python": "conformance_tools:make_schemas"},
    }
}
# what the scenario json-schema-2020-12 says that the tool must have
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def text(value: str) -> TextContent:
    return TextContent(type="text", text=value)


def image() -> ImageContent:
    return ImageContent(type="image", data=base64.b64encode(PIXEL).decode(), mime_type="image/png")


def resource(uri: str, mime_type: str, value: str) -> EmbeddedResource:
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type=mime_type, text=value))


def sound() -> bytes:
    """Ten milliseconds of silence, as WAV."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(160))
    return out.getvalue()


def make(context: Any = None) -> Any:
    """A server whose tools return each kind of content, fail, and report progress."""
    server = new_server("contents")

    @server.tool()
    def test_simple_text() -> str:
        """Text."""
        return "This is a simple text response for testing."

    @server.tool()
    def test_image_content() -> list[ContentBlock]:
        """An image."""
        return [image()]

    @server.tool()
    def test_audio_content() -> list[ContentBlock]:
        """A sound."""
        return [AudioContent(type="audio", data=base64.b64encode(sound()).decode(), mime_type="audio/wav")]

    @server.tool()
    def test_embedded_resource() -> list[ContentBlock]:
        """A resource."""
        return [resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")]

    @server.tool()
    def test_multiple_content_types() -> list[ContentBlock]:
        """A text, an image and a resource."""
        mixed = resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
        return [text("Multiple content types test:"), image(), mixed]

    @server.tool()
    def test_error_handling() -> str:
        """Fail."""
        raise ValueError("This tool intentionally returns an error for testing")

    @server.tool()
    async def test_tool_with_progress(ctx: Context) -> str:
        """Report progress."""
        for done in (0, 50, 100):
            await ctx.report_progress(done, 100)
            await asyncio.sleep(0.05)
        return "done"

    @server.tool()
    async def test_tool_with_logging(ctx: Context) -> str:
        """Log."""
        for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await ctx.info(line)
            await asyncio.sleep(0.05)
        return "done"

    @server.tool()
    async def test_sampling(prompt: str, ctx: Context) -> str:
        """Have the client's model answer."""
        asked = SamplingMessage(role="user", content=text(prompt))
        answer = await ctx.session.create_message([asked], max_tokens=100)
        return f"LLM response: {answer.content}"

    @server.tool()
    async def test_elicitation(message: str, ctx: Context) -> str:
        """Ask the client's user."""
        answer = await ctx.elicit(message, Form)
        return f"User response: {answer}"

    return server


class Form(BaseModel):
    """What a user is asked for."""

    response: str


def make_schemas(context: Any = None) -> Any:
    """A low-level server, of one tool whose schema no function's signature could have made."""

    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        tool = Tool(
            name="json_schema_2020_12_tool", description="Tool with JSON Schema 2020-12 features", input_schema=SCHEMA
        )
        return ListToolsResult(tools=[tool])

    async def call_tool(context: Any, params: Any) -> CallToolResult:
        return CallToolResult(content=[text(repr(params.arguments))])

    return Server("schemas", on_list_tools=list_tools, on_call_tool=call_tool)
