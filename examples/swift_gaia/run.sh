#!/usr/bin/env bash
# GRPO on AWorld/Gaia-v0 with swift's own command line:
#   MODEL=Qwen/Qwen3-0.6B examples/swift_gaia/run.sh --max_steps 100 --learning_rate 1e-6 ...
# Further arguments are swift's. On several GPUs, set NPROC_PER_NODE. For vLLM: --use_vllm true --vllm_mode colocate; or
# with --vllm_mode server, a `swift rollout --external_plugins .../plugin.py --template aworld --model ...` beside it
# (episodes are played by the trainer, so neither has a --multi_turn_scheduler).
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
: "${MODEL:?set MODEL to a folder or a name on a hub}"
NONE='{}'
OUT="${OUT:-runs/swift_gaia}" TASKS="${TASKS:-1000}" SEED="${SEED:-0}" ENV_ARGS="${ENV_ARGS:-$NONE}"

python "$here/plugin.py" AWorld/Gaia-v0 "$OUT/tasks.jsonl" --tasks "$TASKS" --seed "$SEED" --env-args "$ENV_ARGS"
# The first settings are what makes swift train on the env's episodes: plugin, data, template, reward.
swift rlhf --rlhf_type grpo \
    --external_plugins "$here/plugin.py" \
    --dataset "$OUT/tasks.jsonl" \
    --template aworld \
    --reward_funcs aworld_env_reward \
    --model "$MODEL" --output_dir "$OUT" --add_version false --check_model false --seed "$SEED" \
    "$@"
