"""Settings, checked against what a framework knows."""

from dataclasses import dataclass
from typing import Optional

import pytest
import yaml

from adapters.settings import checked, leaves
from aworld_gym.errors import ConfigError

TREE = {"trainer": {"save_freq": 5, "name": "x", "free": {}}, "optim": {"lr": 0.1, "nested": {"a": None}}}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"trainer": {"save_freq": 3}}, [("trainer.save_freq", 3)]),
        ({"trainer.save_freq": 3, "optim.lr": "1e-6"}, [("trainer.save_freq", 3), ("optim.lr", 1e-6)]),
        ({"trainer.save_freq": "3"}, [("trainer.save_freq", 3)]),
        ({"optim": {"nested.a": 1}}, [("optim.nested.a", 1)]),
        ({"trainer.free.mine": {"a": 1}}, [("trainer.free.mine", {"a": 1})]),
        ({"trainer": {"free": {"mine": 2}}}, [("trainer.free", {"mine": 2})]),
        ({"+trainer.mine": {"a": 1}}, [("+trainer.mine", {"a": 1})]),
        ({"trainer": {"+mine": 1}}, [("+trainer.mine", 1)]),
        ({"optim.lr": None}, [("optim.lr", None)]),
    ],
)
def test_leaves(given, found):
    assert list(leaves(given, TREE)) == found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"trainer": {"save_frek": 1}},
            r"no 'trainer.save_frek' \(write '\+trainer.save_frek' .*Did you mean 'save_freq'",
        ),
        ({"trainr.save_freq": 1}, "no 'trainr.save_freq'"),
        ({"trainr": {"save_freq": 1}}, "no 'trainr'.*Did you mean 'trainer'"),
        ({"optim.lr.x": 1}, "no 'optim.lr.x'"),
        ({"trainer.save_freq": "often"}, "trainer.save_freq='often': expected a number, such as 5"),
    ],
)
def test_what_a_tree_does_not_have(given, message):
    with pytest.raises(ConfigError, match=message):
        list(leaves(given, TREE))


def test_fields_of_a_dataclass():
    @dataclass
    class Arguments:
        lr: float = 0.1
        name: str = "x"
        steps: int = 1
        limit: Optional[int] = None  # noqa: UP045 - as frameworks write it
        size: "int | None" = None
        warmup: float | str | None = 0.1
        save_strategy: str = "no"
        save: bool = False

    def train(env, *, credit="episode"): ...

    def read(text):
        return checked(yaml.safe_load(text), Arguments, train)

    assert read("{lr: 1e-6, name: 1e-6, warmup: 1e-1}") == {"lr": 1e-6, "name": "1e-6", "warmup": 0.1}
    assert read("{steps: 1e3, limit: '8', size: 2}") == {"steps": 1000, "limit": 8, "size": 2}
    assert all(type(value) is int for value in read("{steps: 1e3, limit: '8', size: 2}").values())
    assert read("{save_strategy: no, save: no, limit: null}") == {"save_strategy": "no", "save": False, "limit": None}
    assert read("{warmup: auto, lr: auto}") == {"warmup": "auto", "lr": "auto"}, "the framework judges that"
    for text in ("{steps: many}", "{limit: 1e-3}", "{size: .5e}", "{steps: nan}", "{limit: '1e999'}"):
        with pytest.raises(ConfigError, match="expected a whole number"):
            read(text)
    with pytest.raises(ConfigError, match="'credit' is an argument of train"):
        checked({"credit": "step"}, Arguments, train)
    with pytest.raises(ConfigError, match="no field 'nam'.*Did you mean 'name'"):
        checked({"nam": 1}, Arguments, train)
