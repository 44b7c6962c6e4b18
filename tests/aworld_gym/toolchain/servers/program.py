"""A program that uses tool servers and ends in some way: ``program.py HOW CONFIG_JSON [TOOL ARGUMENTS_JSON]``.

It opens a session, calls the tool (if one is named), prints one JSON line - its own descendants' pids and the
tool's text - and then ends as told; ``wait`` waits to be killed.
"""

import json
import multiprocessing
import os
import sys
import threading
import time

import psutil

from aworld_gym.toolchain import Toolchain, loop


async def use(toolchain, tool, arguments):
    session = await toolchain.open()
    result = await session.call("c", tool, arguments) if tool else None
    return session, result and result.text


def main(how, config, tool=None, arguments="{}"):
    toolchain = Toolchain(json.loads(config))
    session, text = loop.run(use(toolchain, tool, json.loads(arguments)), timeout=60)
    pids = [p.pid for p in psutil.Process().children(recursive=True)]
    print(json.dumps({"pids": pids, "text": text, "workspace": str(session.workspace)}), flush=True)
    match how:
        case "return":
            return
        case "raise":
            raise RuntimeError("the program has an error")
        case "thread":  # the main thread ends, another uses the session once more

            def later():
                time.sleep(0.3)
                loop.run(session.call("c", tool, json.loads(arguments)))

            threading.Thread(target=later).start()
        case "os_exit":
            os._exit(4)
        case "wait":
            time.sleep(600)
        case "fork":  # a forked child holds copies of every descriptor and outlives us
            child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
            child.start()
            print(json.dumps({"child": child.pid}), flush=True)
            time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:])
