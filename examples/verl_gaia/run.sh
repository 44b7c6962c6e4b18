#!/usr/bin/env bash
# verl's own launcher over a GAIA env. Further arguments are verl's (hydra overrides): bash run.sh trainer.nnodes=2
#   MODEL  a folder or a hub name         OUT  a folder that all nodes see
#   KWARGS the env's arguments, as JSON   CREDIT  episode (GRPO's advantage of the summed reward) or step
set -euo pipefail
: "${MODEL:?a folder or a hub name}" "${OUT:?a folder that all nodes see}"
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$HERE/../.."
export OUT VERL_USE_EXTERNAL_MODULES=adapters.verl.plugin

mkdir -p "$OUT"
[ -e "$OUT/train.parquet" ] || python examples/verl_gaia/make_rows.py "$OUT" --kwargs "${KWARGS:-{\}}"

exec python -m verl.trainer.main_ppo \
    data.train_files="$OUT/train.parquet" data.val_files="$OUT/eval.parquet" \
    data.filter_overlong_prompts=False \
    data.train_batch_size=32 data.max_prompt_length=6144 data.max_response_length=16384 \
    actor_rollout_ref.model.path="$MODEL" \
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=8 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
    actor_rollout_ref.rollout.gpu_memory_utilization=0.5 \
    actor_rollout_ref.rollout.calculate_log_probs=True \
    actor_rollout_ref.rollout.agent.agent_loop_config_path="$HERE/agent.yaml" \
    actor_rollout_ref.actor.optim.lr=1e-6 actor_rollout_ref.actor.ppo_mini_batch_size=32 \
    actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.use_kl_loss=False \
    algorithm.adv_estimator="aworld_${CREDIT:-episode}" \
    trainer.v1.trainer_mode=aworld_sync \
    trainer.default_local_dir="$OUT/checkpoints" trainer.val_before_train=False \
    trainer.save_freq=20 trainer.test_freq=20 trainer.total_epochs=1 trainer.logger='["console"]' \
    +ray_kwargs.ray_init.runtime_env.env_vars.VERL_USE_EXTERNAL_MODULES=adapters.verl.plugin \
    +ray_kwargs.ray_init.runtime_env.env_vars.OUT="$OUT" \
    "$@"
