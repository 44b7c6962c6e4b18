"""Rows as trainers take them."""

import json
import math

from aworld_gym.token_policy import TokenEpisode
from aworld_gym.tokens import TokenTrajectory
from aworld_gym.trained import TrainedRow
from aworld_gym.types import Episode, Outcome

TRAJECTORY = TokenTrajectory(
    prompt_ids=(1, 2),
    response_ids=(7, 8, 3, 9),
    mask=(1, 1, 0, 1),
    logprobs=(-0.1, -0.2, 0.0, -0.3),
    turn_ends=(1, 3),
    turn_rewards=(0.25, 1.0),
)


def played(outcome=Outcome.ANSWERED, trajectory=TRAJECTORY):
    return TokenEpisode(Episode("env", "task", 0, outcome=outcome), trajectory)


def test_a_row_is_its_trajectory():
    row = TrainedRow.of(played(), filler=5)
    assert (row.prompt_ids, row.response_ids, row.mask) == ((1, 2), (7, 8, 3, 9), (1, 1, 0, 1))
    assert row.valid and row.turn_rewards == (0.25, 1.0) and row.logprobs == (-0.1, -0.2, 0.0, -0.3)
    assert row.turns == TRAJECTORY.turns == ((0, 2), (3, 4))


def test_a_row_without_a_measurement_has_a_filler_that_is_not_trained_on():
    for trajectory, prompt in ((TRAJECTORY, (1, 2)), (None, (5,))):
        row = TrainedRow.of(played(Outcome.INFRA_FAILURE, trajectory), filler=5)
        assert not row.valid and row.prompt_ids == prompt
        assert (row.response_ids, row.mask, row.turns, row.turn_rewards) == ((5,), (0,), (), ())


def test_an_episode_in_which_nothing_was_sampled_is_a_measurement():
    empty = TokenTrajectory((1,), (), (), None, (), ())
    row = TrainedRow.of(played(Outcome.MAX_TOKENS, empty), filler=5)
    assert row.valid and row.mask == (0,) and row.turns == () and math.fsum(row.turn_rewards) == 0.0


def test_rows_survive_as_json():
    for one in (played(), played(Outcome.INFRA_FAILURE)):
        row = TrainedRow.of(one, filler=5)
        assert TrainedRow.from_dict(json.loads(json.dumps(row.to_dict()))) == row
