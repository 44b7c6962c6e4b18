"""``AWorld/Mcp-v0``: anyone's MCP servers as an environment."""
