"""The server of ``tape_server`` over HTTP: prints its port when it listens."""

import socket
import sys
from pathlib import Path

import uvicorn

sys.path.insert(0, str(Path(__file__).parent))
from tape_server import make_server  # noqa: E402

from aworld_gym.types import EpisodeContext  # noqa: E402

sock = socket.socket()
sock.bind(("127.0.0.1", int(sys.argv[-1])))
sock.listen(64)
app = make_server(EpisodeContext(Path("."))).streamable_http_app()
print(sock.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)).run(sockets=[sock])
