"""Logs as JSON, one object a line on stderr, each with the id of the request that it belongs to.

What is logged of a request is its method, path, status, time and session; never a header, a query or a body.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import sys
import time
from contextvars import ContextVar

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)

_GIVEN = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def id_for(given: str | None) -> str:
    """The id of a request: the client's own, where it sent a sane one."""
    return given if given is not None and _GIVEN.fullmatch(given) else secrets.token_hex(8)


class JsonLines(logging.Formatter):
    """A record as one line of JSON; what was given as ``extra`` stands beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **({"request_id": found} if (found := request_id.get()) else {}),
            **{key: value for key, value in vars(record).items() if key not in _STANDARD},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def set_up(level: int = logging.INFO) -> None:
    """Send this process's logs to stderr as JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(logging.WARNING)
    logging.getLogger("aworld_gym").setLevel(level)
