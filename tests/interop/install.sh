#!/bin/sh
# Install the foreign MCP servers of the interoperability tests under .interop/, in their pinned versions.
# Needs npm (Node 18 or newer) and Python 3.11 or 3.12 (PYTHON=... chooses one). Run again to update.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
target=$here/../../.interop
command -v npm >/dev/null || { echo "the interoperability tests need npm (Node 18 or newer) on PATH" >&2; exit 1; }
mkdir -p "$target"
cp "$here/package.json" "$target/package.json"
(cd "$target" && npm install --no-audit --no-fund --no-package-lock --loglevel=error)
[ -x "$target/venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$target/venv"
"$target/venv/bin/python" -m pip install -q -r "$here/requirements.txt"
touch "$target/.done"
echo "installed under $target"
