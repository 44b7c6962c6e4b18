"""A few of the GAIA tools as a model is shown them, for tests that need no server."""


def tool(name: str, *required: str) -> dict:
    """The schema of a tool, all of whose arguments are texts."""
    parameters = {"type": "object", "properties": {r: {"type": "string"} for r in required}, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": "?", "parameters": parameters}}


TOOLS = [
    tool("list_files"),
    tool("read_table", "path"),
    tool("calculate", "expression"),
    tool("submit_answer", "answer"),
]
