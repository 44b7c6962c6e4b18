"""A real vLLM server on CPUs for the whole run. Without vLLM in the environment nothing here is collected."""

import importlib.util
import os

import pytest

if importlib.util.find_spec("vllm") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A taught model. Its heads are of a size that vLLM has kernels for on CPUs."""
    import tiny_model

    return tiny_model.build(tmp_path_factory.mktemp("model") / "tiny", head_dim=32)


@pytest.fixture(scope="session")
def codec(folder):
    from aworld_gym.vllm.policy import load_codec

    return load_codec(str(folder), str(folder))


@pytest.fixture(scope="session")
def shared_memory():
    """What is in shared memory before the server is there."""
    return set(os.listdir("/dev/shm"))


@pytest.fixture(scope="session")
def server(folder, shared_memory):
    """The server; what it prints is shown where it does not start."""
    from aworld_gym.vllm import VllmServer

    with VllmServer(str(folder)) as running:
        yield running
