"""A taught tiny model, once per session, and quiet sessions around every test.

These tests run where TRL is installed (``make test-trl``); elsewhere there is nothing to collect.
"""

import importable_adapters

if "trl" not in importable_adapters.here():
    collect_ignore_glob = ["test_*.py"]
else:
    import warnings
    from pathlib import Path

    import pytest
    import tiny_model
    from probe_trainer import Probe, ProbeTrainer
    from say_sessions import sessions_fixture  # noqa: F401

    SMALL = {
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_steps": 2,
        "max_completion_length": 120,
        "learning_rate": 1e-4,
        "logging_steps": 1,
        "gradient_checkpointing": False,
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        "bf16": False,
        "seed": 1,
    }
    """Settings of a training that takes a second."""

    @pytest.fixture(scope="session")
    def taught(tmp_path_factory) -> Path:
        """The folder of a model that calls the tools of ``say_env``, mostly well-formed and sometimes right."""
        return tiny_model.build(tmp_path_factory.mktemp("model") / "tiny")

    @pytest.fixture(autouse=True)
    def fresh():
        """No trainers of earlier tests, and no word of what is to change in releases to come."""
        warnings.simplefilter("ignore", FutureWarning)
        Probe.made.clear()

    @pytest.fixture
    def probe(monkeypatch):
        """``adapters.trl.train`` with a trainer that remembers; call it for the trainer of the last run."""
        from adapters.trl import run

        monkeypatch.setattr(run, "EnvGRPOTrainer", ProbeTrainer)
        return lambda: Probe.made[-1]

    @pytest.fixture
    def small():
        """Settings of a training that takes a second, to be changed."""
        return dict(SMALL)
