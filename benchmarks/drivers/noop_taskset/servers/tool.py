"""The tool, as a toolset of verifiers 0.4."""

import verifiers.v1 as vf


class NoopToolset(vf.Toolset[vf.SharedToolsetConfig]):
    """One tool that does nothing."""

    TOOL_PREFIX = "bench"

    @vf.tool
    async def noop(self, x: int) -> str:
        """Return x."""
        return str(x)


if __name__ == "__main__":
    NoopToolset.run()
