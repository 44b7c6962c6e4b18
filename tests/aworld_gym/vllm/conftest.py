"""A model's folder without a model, its codec, and the stand-in for a server."""

import pytest
import tiny_model
from vllm_stand_in import VllmStandIn, scripted

from aworld_gym.tokens import ChatCodec


@pytest.fixture(scope="session")
def codec():
    return ChatCodec(tiny_model.tokenizer())


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """What a tokenizer is loaded from."""
    place = tmp_path_factory.mktemp("model") / "tiny"
    tiny_model.tokenizer().save_pretrained(place)
    return place


@pytest.fixture
def serve(codec):
    """Stand-ins, ended with the test; ``sample`` is an echo and the right answer where nothing is said."""
    running = []

    def start(sample=None, **options):
        server = VllmStandIn(codec, sample or scripted(codec), **options)
        running.append(server.__enter__())
        return server

    yield start
    for server in running:
        server.__exit__()
