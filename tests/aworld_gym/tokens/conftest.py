from __future__ import annotations

import chat_tokenizers
import pytest

from aworld_gym.tokens import ChatCodec


def _param(name: str) -> object:
    """Real vocabularies are large and take seconds to build; they are left out where their package is missing."""
    reason = chat_tokenizers.missing(name)
    marks = [pytest.mark.skipif(bool(reason), reason=reason)]
    return pytest.param(name, marks=[*marks, pytest.mark.slow] if name.startswith("real_") else marks)


@pytest.fixture(params=[_param(name) for name in chat_tokenizers.FAMILIES])
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
