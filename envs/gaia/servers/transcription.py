"""Speech to text: sends a sound file of the workspace to an OpenAI-compatible transcription endpoint."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from envs.gaia.mcp_tools import Tool
from envs.gaia.servers.llm import HOW, Endpoint, needs
from envs.gaia.servers.settings import llm_variables
from envs.gaia.servers.spec import ServerSpec, Setup
from envs.gaia.servers.web import Recent
from envs.gaia.tools.base import ToolFault, page_of, quoted

MAX_BYTES = 25 << 20
"""As much as OpenAI's endpoint takes."""
ENDINGS = (".flac", ".m4a", ".mp3", ".mp4", ".mpeg", ".mpga", ".oga", ".ogg", ".wav", ".webm")


def build(setup: Setup) -> list[Tool]:
    """The one tool."""
    model = Endpoint(setup.settings, "AUDIO")
    workspace = setup.workspace
    recent = Recent()

    async def transcribe_audio(
        path: Annotated[str, Field(min_length=1)],
        language: Annotated[str, Field(pattern=r"^([a-z]{2,3})?$", description="Such as en; guessed by default.")] = "",
        page: Annotated[int, Field(ge=1)] = 1,
    ) -> str:
        if not path.lower().endswith(ENDINGS):
            raise ToolFault(f"{quoted(path)} is no sound file: names end with {', '.join(ENDINGS)}")
        data = workspace.read(path, limit=MAX_BYTES)
        if not data:
            raise ToolFault(f"{quoted(path)} is empty")

        async def call(client: Any) -> str:
            extra = {"language": language} if language else {}
            # the name tells the endpoint the format, and says nothing of this machine
            ending = path.lower().rpartition(".")[2]
            done = await client.audio.transcriptions.create(model=model.model, file=(f"sound.{ending}", data), **extra)
            text = done if isinstance(done, str) else done.text
            return text.strip() or "(no speech)"

        return page_of(await recent.get((hash(data), language), lambda: model.use(call)), page)

    return [Tool(transcribe_audio, "Write down the speech in a sound file of the workspace.")]


SERVER = ServerSpec(
    name="transcription",
    summary="Speech to text through an OpenAI-compatible endpoint.",
    tools=("transcribe_audio",),
    build=build,
    variables=llm_variables("AUDIO", "for /audio/transcriptions (a Whisper model)"),
    needs=needs("AUDIO"),
    how=HOW,
    scope="episode",
)

if __name__ == "__main__":
    SERVER.run()
