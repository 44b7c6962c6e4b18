"""What the tools cost in a prompt."""

import pytest
from chat_tokenizers import build, missing
from gaia_tools import openai_schemas, served


@pytest.mark.skipif(bool(missing("real_qwen3")), reason=missing("real_qwen3"))
async def test_schemas_cost_at_most_3000_tokens_of_qwen(tmp_path):
    """As Qwen3's template writes them into the prompt, in its own vocabulary."""
    tokenizer = build("real_qwen3")
    said = [{"role": "user", "content": "Hello"}]

    def cost(tools):
        prompt = tokenizer.apply_chat_template(said, tools=tools, tokenize=False)
        return len(tokenizer.encode(prompt, add_special_tokens=False))

    async with served(tmp_path) as session:
        full = openai_schemas(await session.tools())
    async with served(tmp_path, compact=True) as session:
        compact = openai_schemas(await session.tools())
    assert 1000 < cost(full) - cost(None) <= 3000
    assert cost(compact) < cost(full)
