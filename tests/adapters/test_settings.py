"""Settings, checked against what a framework knows."""

from dataclasses import dataclass

import pytest

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

    def train(env, *, credit="episode"): ...

    assert checked({"lr": "1e-6", "name": "1e-6"}, Arguments, train) == {"lr": 1e-6, "name": "1e-6"}
    with pytest.raises(ConfigError, match="'credit' is an argument of train"):
        checked({"credit": "step"}, Arguments, train)
    with pytest.raises(ConfigError, match="no field 'nam'.*Did you mean 'name'"):
        checked({"nam": 1}, Arguments, train)
