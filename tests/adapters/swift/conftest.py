"""These tests run where ms-swift is installed (``make test-swift``); elsewhere there is nothing to collect."""

import importlib.util

if importlib.util.find_spec("swift") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from pathlib import Path

    import pytest
    import tiny_model
    from say_sessions import sessions_fixture  # noqa: F401

    SMALL = {
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 1,
        "num_generations": 4,
        "max_steps": 2,
        "max_completion_length": 120,
        "learning_rate": 1e-4,
        "lr_scheduler_type": "constant",
        "warmup_ratio": 0.0,
        "beta": 0.0,
        "temperature": 1.0,
        "tuner_type": "full",
        "logging_steps": 1,
        "gradient_checkpointing": False,
        "save_strategy": "no",
        "report_to": ["none"],
        "dataset_num_proc": 1,
        "seed": 1,
    }
    """Settings of a training that takes seconds."""

    @pytest.fixture(scope="session")
    def taught(tmp_path_factory) -> Path:
        """The folder of a model that calls the tools of ``say_env``, mostly well-formed and sometimes right."""
        return tiny_model.build(tmp_path_factory.mktemp("model") / "tiny")

    @pytest.fixture(scope="session")
    def warm_start() -> Path:
        """The folder of a model that calls the tools of the mini GAIA env."""
        return Path(__file__).parents[2] / "data" / "warm_start"

    @pytest.fixture
    def probe(monkeypatch):
        """``adapters.swift.train`` with a trainer that remembers; call it for the trainer of the last run."""
        from swift_probe import ProbeTrainer

        from adapters.swift import plugin

        monkeypatch.setattr(plugin, "TRAINER", "swift_probe.ProbeTrainer")
        ProbeTrainer.made.clear()
        return lambda: ProbeTrainer.made[-1]

    @pytest.fixture
    def small():
        """Settings of a training that takes seconds, to be changed."""
        return dict(SMALL)
