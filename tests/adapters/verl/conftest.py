"""These tests run where verl is installed (``make test-verl``); elsewhere there is nothing to collect."""

import importlib.util

if importlib.util.find_spec("verl") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    import pytest
    import tiny_model
    from say_sessions import sessions_fixture  # noqa: F401

    @pytest.fixture(scope="session")
    def untaught(tmp_path_factory):
        """The folder of an untrained model with the tokenizer of ``say_env``'s tasks."""
        folder, tokenizer = tmp_path_factory.mktemp("model") / "tiny", tiny_model.tokenizer()
        tiny_model.random_model(tokenizer).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder
