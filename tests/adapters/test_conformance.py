"""The adapters of this environment keep the contract: :func:`aworld_gym.testing.check_adapter`."""

import importable_adapters
import pytest

from aworld_gym.testing import ADAPTER_RULES, check_adapter


@pytest.mark.parametrize("name", importable_adapters.here())
def test_adapter(name):
    assert set(check_adapter(importable_adapters.rollout_rows(name))) == ADAPTER_RULES.keys()
