"""Train a small language model on the embedded GAIA world: ``python -m examples.train_gaia --output runs/gaia``.

The model is built, warmed up by imitation and then trained by TRL's own GRPOTrainer on the real env, with nothing
downloaded. Reinforcement learning is a call of :func:`adapters.trl.train`; everything else here makes the small
model (:mod:`.tokenizer`, :mod:`.model`, :mod:`.warm`), measures (:mod:`.evaluation`) and reports (:mod:`.report`).
"""
