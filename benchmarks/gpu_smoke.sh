#!/usr/bin/env bash
# Does TRL train on the env on a GPU, and how fast? Under 8 minutes, nothing downloaded.
#
# A model of Qwen3-0.6B's shape and a tokenizer are built here, in bf16; a few supervised steps teach it to call tools;
# then a few GRPO steps on AWorld/Gaia-v0 (preset mini) print tokens a second and step times.
# Not a part of `make test`.
set -euo pipefail

usage() {
  cat <<TEXT
usage: benchmarks/gpu_smoke.sh [--steps N] [--python PATH] [--output FOLDER] [--dry-run]
  --steps N        GRPO steps (5)
  --python PATH    an interpreter with aworld-gym[gaia,trl] (.venv/bin/python of this checkout)
  --output FOLDER  where the run and result.json are left (a temporary folder, removed afterwards)
  --dry-run        a tiny model on the CPU: shows that the script works, and measures nothing
TEXT
}

fail() {
  echo "gpu_smoke: $1" >&2
  exit 2
}

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
steps=5 python="$root/.venv/bin/python" output="" dry=""
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --dry-run) dry="--dry-run"; shift ;;
    --steps | --python | --output)
      [ $# -ge 2 ] || fail "$1 needs a value"
      case "$1" in
        --steps) steps="$2" ;;
        --python) python="$2" ;;
        --output) output="$2" ;;
      esac
      shift 2 ;;
    *) usage >&2; fail "unknown argument $1" ;;
  esac
done
[[ "$steps" =~ ^[1-9][0-9]*$ ]] || fail "--steps must be a whole number of at least 1, got $steps"
command -v "$python" >/dev/null 2>&1 || fail "no interpreter at $python: run \`make venv\`, or name one with --python"
if [ -z "$dry" ]; then
  command -v nvidia-smi >/dev/null 2>&1 || fail "no NVIDIA GPU here (no nvidia-smi); --dry-run shows the script on a CPU"
fi
if [ -z "$output" ]; then
  output="$(mktemp -d)"
  trap 'rm -rf "$output"' EXIT
fi

export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 TOKENIZERS_PARALLELISM=false
cd "$root"
# 8 minutes, whatever happens: a hung run is a result too.
status=0
timeout --signal=INT --kill-after=15 460 "$python" -m benchmarks.gpu_smoke --steps "$steps" --output "$output" $dry || status=$?
[ "$status" -ne 124 ] || echo "gpu_smoke: not done after 460 s" >&2
exit "$status"
