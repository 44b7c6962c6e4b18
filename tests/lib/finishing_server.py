"""A server with tools of its own to end an episode by, for ``submit_tool=``."""

from aworld_gym.toolchain.compat import new_server


def make_server(context):
    server = new_server("finishing")

    @server.tool(description="Add two integers.")
    def add(a: int, b: int) -> str:
        return str(a + b)

    @server.tool(description="End the task with its answer.")
    def finish(answer: str) -> str:
        return "finished"

    @server.tool(description="End the task with a report.")
    def report(text: str) -> str:
        return "reported"

    return server
