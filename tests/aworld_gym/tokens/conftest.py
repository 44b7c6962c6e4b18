from __future__ import annotations

import chat_tokenizers
import pytest

from aworld_gym.tokens import ChatCodec


@pytest.fixture(params=list(chat_tokenizers.FAMILIES))
def family(request: pytest.FixtureRequest) -> str:
    """A model family's name."""
    return request.param


@pytest.fixture
def parts(family: str) -> chat_tokenizers.Family:
    """What the family's tokenizer is made of."""
    return chat_tokenizers.FAMILIES[family]


@pytest.fixture
def codec(family: str) -> ChatCodec:
    """A codec for the family, all defaults."""
    return ChatCodec(chat_tokenizers.build(family))
