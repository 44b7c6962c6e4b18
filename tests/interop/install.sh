#!/bin/sh
# Install what the interoperability tests run against under .interop/, pinned: foreign MCP servers and clients, and
# MCP's conformance suite. Needs npm and Python 3.11 or 3.12 (PYTHON=... chooses one). Run again to update.
# The inspector needs Node 22.19: it comes along for Linux; elsewhere the one on PATH must be that new.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
target=$here/../../.interop
command -v npm >/dev/null || { echo "the interoperability tests need npm (Node 18 or newer) on PATH" >&2; exit 1; }
mkdir -p "$target"
cp "$here/package.json" "$target/package.json"
(cd "$target" && npm install --no-audit --no-fund --no-package-lock --ignore-scripts --loglevel=error)
for one in venv:requirements.txt fastmcp:requirements-fastmcp.txt; do
    venv=$target/${one%%:*}
    [ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/python" -m pip install -q -r "$here/${one#*:}"
done
touch "$target/.done"
echo "installed under $target"
