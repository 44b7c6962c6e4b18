"""A stdio server written without any SDK, that misbehaves as told: ``raw.py MODE [MODE ...]``.

Every mode is one fault; without one it behaves. It imports nothing heavy, so that tests start it in no time.
"""

import json
import os
import subprocess
import sys
import threading
import time

MODES = set(sys.argv[1:])
OBJECT = {"type": "object", "properties": {}}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def tool(name, schema=None, **more):
    return {"name": name, "description": f"{name}.", "inputSchema": OBJECT if schema is None else schema, **more}


TOOLS = [
    tool("echo", TEXT, annotations={"readOnlyHint": True}),
    tool("put", TEXT),  # changes what the server remembers
    tool("get", annotations={"readOnlyHint": True}),
    tool("set", TEXT, annotations={"idempotentHint": True}),
    tool("pid", annotations={"readOnlyHint": True}),
    tool("die"),  # ends the process in the middle of the call
    tool("die_once", TEXT, annotations={"readOnlyHint": True}),  # the same, if the file named does not exist yet
    tool("hang"),  # never answers, and the server answers nothing else any more
    tool("slow", {"type": "object", "properties": {"seconds": {"type": "number"}}}),  # answers late, from a thread
    tool("mismatch", outputSchema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}),
    tool("huge", {"type": "object", "properties": {"chars": {"type": "integer"}}}),
    tool("refuse"),  # answers with a JSON-RPC error
    tool("odd", {"type": "object", "properties": {"kind": {"type": "string"}}}),
    tool("raw", {"type": "object", "properties": {"result": {}}}),  # answers with what it is given
    tool("line", TEXT, annotations={"idempotentHint": False}),  # prints a line; ID in it is the request's
    tool("mute"),  # closes stdout, and lives on
    tool("children"),  # starts processes that would outlive it; says their pids
    tool("reset"),
]
ODD = {
    "string": {"content": "just text"},
    "nothing": {},
    "null": {"content": None},
    "structured": {"structuredContent": {"a": [1, "é"]}},
    "listed": {"content": [], "structuredContent": [1, 2]},
    "unknown": {"content": [{"type": "hologram", "x": 1}]},
    "halves": {"content": [{"type": "text"}, {"type": "image"}, "bare", 3]},
}
memory = []
lock = threading.Lock()


def send(message):
    line = json.dumps(message)
    with lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def text(value):
    return {"content": [{"type": "text", "text": str(value)}]}


def call(name, arguments):
    match name:
        case "echo":
            return text(arguments["text"])
        case "put" | "set":
            memory.append(arguments["text"]) if name == "put" else memory.__setitem__(slice(None), [arguments["text"]])
            return text(len(memory))
        case "get":
            return text(",".join(memory))
        case "reset":
            if "reset-fails" in MODES:
                return text("cannot") | {"isError": True}
            if "reset-changes" in MODES:
                TOOLS.pop()
            memory[:] = ["reset"] if "hang-relist" in MODES else []
            return text("done")
        case "pid":
            return text(os.getpid())
        case "die":
            print("fatal: out of luck", file=sys.stderr, flush=True)
            os._exit(3)
        case "die_once":
            if not os.path.exists(arguments["text"]):
                open(arguments["text"], "w").close()
                os._exit(3)
            return text("alive")
        case "hang":
            time.sleep(3600)
        case "mismatch":
            return {"content": [{"type": "text", "text": "n is many"}], "structuredContent": {"n": "many"}}
        case "huge":
            return text("x" * arguments["chars"])
        case "odd":
            return ODD[arguments["kind"]]
        case "raw":
            return arguments["result"]
        case "mute":
            os.close(1)
            time.sleep(3600)
        case "children":
            return text(json.dumps([child(detach) for detach in (False, True)]))
    raise KeyError(name)


def child(detach):
    """The pid of a process that ignores every polite signal; detached from us, as a daemon is."""
    code = (
        "import os, signal, time\n"
        "for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)\n"
        f"if {detach}:\n    os.setsid()\n    if os.fork(): os._exit(0)\n"
        "print(os.getpid(), flush=True); os.close(1); time.sleep(3600)"
    )
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE, text=True)
    return int(process.stdout.readline())


def answer(message):
    method, number = message.get("method"), message.get("id")
    if number is None:
        return
    params = message.get("params") or {}
    if method == "initialize":
        if "slow-start" in MODES:
            time.sleep(3600)
        result = {
            "protocolVersion": "1999-01-01" if "old" in MODES else params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "raw", "version": "0"},
        }
    elif method == "ping":
        result = {}
    elif method == "tools/list" and "no-list" not in MODES:
        result = listing(params.get("cursor"))
    elif method == "tools/call":
        name, arguments = params["name"], params.get("arguments") or {}
        if name == "slow":
            late = {"jsonrpc": "2.0", "id": number, "result": text("late")}
            threading.Timer(arguments.get("seconds", 1), send, (late,)).start()
            return
        if name == "refuse":
            send({"jsonrpc": "2.0", "id": number, "error": {"code": -32602, "message": "not in this tone"}})
            return
        if name == "line":
            with lock:
                sys.stdout.write(arguments["text"].replace("ID", str(number)) + "\n")
                sys.stdout.flush()
            return
        result = call(name, arguments)
    else:
        send({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": f"no method {method}"}})
        return
    send({"jsonrpc": "2.0", "id": number, "result": result})


def nested(levels):
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


def listing(cursor):
    if "empty" in MODES:
        return {"tools": []}
    if "nameless" in MODES:
        return {"tools": [{"inputSchema": OBJECT}]}
    if "pages" in MODES:
        page = int(cursor or 0)
        return {"tools": TOOLS[page : page + 1]} | ({"nextCursor": str(page + 1)} if page + 1 < len(TOOLS) else {})
    if "many" in MODES:
        return {"tools": [tool(f"t{k}") for k in range(3000)]}
    if "emoji" in MODES:  # cut in the middle
        return {"tools": [tool("echo", TEXT) | {"description": "Smile \ud83d"}]}
    if "deep" in MODES:
        return {
            "tools": [
                *TOOLS,
                tool("deep", {"type": "object", "properties": {"a": nested(400), "b": {"type": "integer"}}}),
            ]
        }
    if "hang-relist" in MODES and memory:
        time.sleep(3600)
    if "odd-tools" in MODES:
        return {"tools": ODD_TOOLS}
    return {"tools": TOOLS}


ODD_TOOLS = [
    {"name": "files.read/all", "inputSchema": {"type": "object"}},
    {"name": "files_read_all", "inputSchema": {}},  # no type; and the alias of the first is its name
    {"name": "x" * 128, "inputSchema": {"type": "object", "properties": None, "required": None}},
    {"name": "x" * 127 + "y", "inputSchema": {"type": ["object", "null"], "properties": {"a": True}}},
    {"name": "日本", "description": None, "title": "Japan", "inputSchema": {"type": "object"}},
    {"name": "broken", "inputSchema": {"type": "object", "properties": {"a": {"type": "strnig"}}}},
    {"name": "bare"},
    {
        "name": "tree",
        "inputSchema": {
            "type": "object",
            "properties": {"root": {"$ref": "#/$defs/Node"}, "leaf": {"$ref": "#/$defs/Leaf"}},
            "$defs": {
                "Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}},
                "Leaf": {"type": "integer"},
            },
        },
        "annotations": {"readOnlyHint": "yes"},
    },
]


def flood():
    while True:
        sys.stderr.write("noise " * 200 + "\n")


def main():
    if "mute" in MODES:
        os.close(1)
        time.sleep(3600)
    if "dead" in MODES:
        print("cannot find libimportant.so.3", file=sys.stderr)
        sys.exit(7)
    if "garbage" in MODES:
        print('Welcome to this server!\n{"level": "info"}\n[1, 2]\n\xff', flush=True)
    if "flood" in MODES:
        threading.Thread(target=flood, daemon=True).start()
    if "stubborn" in MODES:
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        if "garbage" in MODES:
            print(f"got {line[:40]}", flush=True)
        answer(json.loads(line))
    if "stubborn" in MODES:
        time.sleep(3600)


main()
