"""The check of adapters, on the package's own rollout and on one broken rollout for each rule."""

import dataclasses

import gymnasium as gym
import pytest

from aworld_gym.errors import ConfigError
from aworld_gym.play import Item
from aworld_gym.testing import ADAPTER_RULES, AdapterError, check_adapter, reference
from aworld_gym.token_policy import token_rollout
from aworld_gym.tokens import ChatCodec
from aworld_gym.trained import TrainedRow


def rollout(env, codec, generate, items, *, max_tokens, **options):
    played = token_rollout(env, codec, generate, items, max_tokens=max_tokens, **options)
    return [TrainedRow.of(one, filler=min(codec.stop_ids)) for one in played]


def test_the_packages_own_rollout_passes():
    assert set(check_adapter(rollout)) == ADAPTER_RULES.keys()


def test_other_templates():
    """A codec of one's own: here one with reasoning, and closing tags that the default lacks."""
    own = reference.codec()
    template = own.template.replace("<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant\n<think>\n{% endif %}")
    codec = ChatCodec(own.tokenizer, template=own.template, stop_ids=[*own.stop_ids, 7])
    assert template != own.template
    check_adapter(rollout, codec=codec, skip=["slow_tools_are_answered"])


# ---- rows changed afterwards -----------------------------------------------------------------------------------------


def rows(change):
    def broken(env, codec, generate, items, *, max_tokens):
        return [change(row, codec) for row in rollout(env, codec, generate, items, max_tokens=max_tokens)]

    return broken


def retokenised(row, codec):
    """What most trainers do: a turn's text, written by the tokenizer."""
    if not row.turns:
        return row
    ids, mask, rest = [], [], 0
    for start, stop in row.turns:
        new = codec.tokenizer.encode(codec.tokenizer.decode(list(row.response_ids[start:stop])))
        ids += [*row.response_ids[rest:start], *new]
        mask += [*row.mask[rest:start], *[1] * len(new)]
        rest = stop
    ids, mask = ids + list(row.response_ids[rest:]), mask + list(row.mask[rest:])
    ends = [k for k, bit in enumerate(mask) if bit and (k + 1 == len(mask) or not mask[k + 1])]
    return TrainedRow(row.prompt_ids, tuple(ids), tuple(mask), row.turn_rewards, tuple(ends), row.valid)


def replace(**changes):
    return lambda row, codec: dataclasses.replace(row, **{k: f(row) for k, f in changes.items()})


def one_more(row, codec):
    """The id after a turn is trained on, as of a template that closes turns twice."""
    if len(row.turns) < 2:
        return row
    mask, end = list(row.mask), row.turn_ends[0]
    mask[end + 1] = 1
    return dataclasses.replace(row, mask=tuple(mask), turn_ends=(end + 1, *row.turn_ends[1:]))


def another_observation(row, codec):
    if len(row.turns) < 2:
        return row
    ids = list(row.response_ids)
    ids[row.turn_ends[0] + 1] += 1
    return dataclasses.replace(row, response_ids=tuple(ids))


def swapped_turns(row, codec):
    """Two turns of one row change places, with all that was sampled in them."""
    if len(row.turns) != 3:
        return row
    (a, b), (c, d), _ = row.turns
    ids, mask = list(row.response_ids), list(row.mask)
    ids[a:d] = ids[c:d] + ids[b:c] + ids[a:b]
    mask[a:d] = mask[c:d] + mask[b:c] + mask[a:b]
    ends = tuple(k for k, bit in enumerate(mask) if bit and (k + 1 == len(mask) or not mask[k + 1]))
    return dataclasses.replace(row, response_ids=tuple(ids), mask=tuple(mask), turn_ends=ends, logprobs=None)


def beyond_the_stop(row, codec):
    """As one that takes the sampler at its word, which was given no stop ids."""
    if "Kind: overruns" not in codec.tokenizer.decode(list(row.prompt_ids)):
        return row
    end, extra = row.turn_ends[0] + 1, codec.tokenizer.encode(" never said ")
    ids = (*row.response_ids[:end], *extra, *row.response_ids[end:])
    mask = (*row.mask[:end], *[1] * len(extra), *row.mask[end:])
    ends = (end - 1 + len(extra), row.turn_ends[1] + len(extra))
    return TrainedRow(row.prompt_ids, ids, mask, row.turn_rewards, ends, row.valid)


def summed(row):
    """What most trainers do with step rewards."""
    return (*[0.0] * (len(row.turn_rewards) - 1), sum(row.turn_rewards)) if row.turn_rewards else ()


def invalid_is_trained_on(row):
    return row.mask if row.valid else (1,) * len(row.mask)


CHANGED = [
    ("sampled_ids_exact", retokenised, "nobody sampled"),
    ("mask_only_on_sampled_ids", one_more, "more than were sampled have mask 1"),
    ("no_id_beyond_the_stop", beyond_the_stop, "more than were sampled have mask 1"),
    ("appended_ids", another_observation, "sampled after other ids|ids between turns"),
    ("sampled_after_the_same_ids", swapped_turns, "was sampled after other ids"),
    ("aligned", replace(mask=lambda row: row.mask[:-1]), "length of the mask"),
    ("aligned", replace(turn_ends=lambda row: row.turn_ends[:-1]), "number of turn rewards"),
    ("turn_ends", replace(turn_ends=lambda row: tuple(max(0, e - 1) for e in row.turn_ends)), "turn ends: expected"),
    ("turn_rewards", replace(turn_rewards=summed), "turn rewards: expected"),
    ("prompt_ids", replace(prompt_ids=lambda row: row.prompt_ids[1:]), "prompt ids: expected"),
    ("invalid_rows_have_no_loss", replace(mask=invalid_is_trained_on), "ids with mask 1: expected 0"),
    ("logprobs", replace(logprobs=lambda row: None if row.logprobs is None else (-0.5,) * len(row.mask)), "expected"),
    ("siblings_are_unharmed", replace(valid=lambda row: False), "valid: expected True, got False"),
]


@pytest.mark.parametrize(
    ("rule", "change", "message"), CHANGED, ids=[f"{rule}-{k}" for k, (rule, *_) in enumerate(CHANGED)]
)
def test_a_changed_row_is_found_out(rule, change, message):
    skip = ["sampled_after_the_same_ids"] if rule == "appended_ids" else []
    with pytest.raises(AdapterError, match=message) as caught:
        check_adapter(rows(change), skip=skip)
    assert caught.value.rule == rule, str(caught.value)
    assert str(caught.value).startswith(f"{rule}: {ADAPTER_RULES[rule]}")


# ---- rollouts that go wrong ------------------------------------------------------------------------------------------


def out_of_order(env, codec, generate, items, *, max_tokens):
    return rollout(env, codec, generate, items, max_tokens=max_tokens)[::-1]


def loses_a_row(env, codec, generate, items, *, max_tokens):
    return [row for row in rollout(env, codec, generate, items, max_tokens=max_tokens) if row.valid][:-1]


def forgets_wrappers(env, codec, generate, items, *, max_tokens):
    return rollout(env.spec.id, codec, generate, items, max_tokens=max_tokens)


def forgets_the_wrapper_only(env, codec, generate, items, *, max_tokens):
    spec = env.spec
    spec.additional_wrappers = ()
    return rollout(spec, codec, generate, items, max_tokens=max_tokens)


def forgets_seeds(env, codec, generate, items, *, max_tokens):
    items = [Item(k, 2, item.index) for k, item in enumerate(items)]
    return rollout(env, codec, generate, items, max_tokens=max_tokens)


def never_retries(env, codec, generate, items, *, max_tokens):
    return rollout(env, codec, generate, items, max_tokens=max_tokens, retries=0)


def exceeds(env, codec, generate, items, *, max_tokens):
    return rollout(env, codec, generate, items, max_tokens=max_tokens + (max_tokens < 200))


def invents_logprobs(env, codec, generate, items, *, max_tokens):
    found = rollout(env, codec, generate, items, max_tokens=max_tokens)
    return [dataclasses.replace(row, logprobs=row.logprobs or (-1.0,) * len(row.mask)) for row in found]


class Unsteady:
    """Something that the second rollout does otherwise than the first: here, the order of tasks."""

    def __init__(self):
        self.calls = 0

    def __call__(self, env, codec, generate, items, *, max_tokens):
        self.calls += 1
        found = rollout(env, codec, generate, items, max_tokens=max_tokens)
        return (
            [dataclasses.replace(row, prompt_ids=(*row.prompt_ids, 5)) for row in found] if self.calls == 2 else found
        )


kept = []


def never_closes(env, codec, generate, items, *, max_tokens):
    mine = gym.make(env.spec)
    mine.reset(seed=0)
    kept.append(mine)
    return rollout(env, codec, generate, items, max_tokens=max_tokens)


def swallows_the_sampler(env, codec, generate, items, *, max_tokens):
    try:
        return rollout(env, codec, generate, items, max_tokens=max_tokens)
    except ConnectionError:
        return [TrainedRow((1,), (1,), (0,), (), (), True) for _ in items]


BROKEN = [
    ("one_row_per_item", loses_a_row),
    ("one_row_per_item", out_of_order),
    ("spec_reaches_the_env", forgets_wrappers),
    ("turn_rewards", forgets_the_wrapper_only),
    ("seed_reaches_the_env", forgets_seeds),
    ("failures_are_retried", never_retries),
    ("truncation", exceeds),
    ("without_logprobs", invents_logprobs),
    ("envs_are_closed", never_closes),
    ("sampler_fails_cleanly", swallows_the_sampler),
]


@pytest.mark.parametrize(("rule", "broken"), BROKEN, ids=[broken.__name__ for _, broken in BROKEN])
def test_a_broken_rollout_is_found_out(rule, broken, monkeypatch):
    monkeypatch.setattr("aworld_gym.testing.adapter.SETTLE_S", 0.3)
    try:
        with pytest.raises(AdapterError) as caught:
            check_adapter(broken, skip=["slow_tools_are_answered"])
        assert caught.value.rule == rule, str(caught.value)
    finally:
        while kept:
            kept.pop().close()


def test_the_second_time_counts():
    with pytest.raises(AdapterError, match="^same_again"):
        check_adapter(Unsteady())


def test_rules_can_be_left_out():
    skip = ["turn_rewards", "failures_are_retried", "siblings_are_unharmed", "slow_tools_are_answered"]
    checked = check_adapter(rows(replace(turn_rewards=summed)), skip=skip)
    assert "turn_rewards" not in checked and "turn_ends" in checked
    with pytest.raises(ConfigError, match="Did you mean 'turn_rewards'"):
        check_adapter(rollout, skip=["turn_reward"])


# ---- what the checks are made of -------------------------------------------------------------------------------------


def test_every_kind_has_a_seed_and_ends_as_it_says():
    codec, kinds = reference.codec(), list(reference.KINDS)
    items, script = reference.items(*kinds), reference.Script(codec)
    env = reference.shaped(slow=True)
    played = token_rollout(env, codec, script, items, max_tokens=reference.BUDGET)
    env.close()
    episodes = {kind: one.episode for kind, one in zip(kinds, played, strict=True)}
    assert [episode.task_id for episode in episodes.values()] == kinds
    ends = {kind: str(episode.outcome) for kind, episode in episodes.items()}
    assert ends.pop("babbles") == "max_tokens" and ends.pop("stops") == "no_answer" and {*ends.values()} == {"answered"}
    assert {kind for kind, e in episodes.items() if e.score != 1.0} == {"wrong", "stops", "babbles"}
    results = [[result.error for step in episodes[kind].steps for result in step.results] for kind in kinds]
    errors = dict(zip(kinds, results, strict=True))
    assert errors["slow"] == ["tool_timeout", None] and errors["plain"] == errors["hostile"][1:] == [None, None]
    assert errors["parallel"] == [None, None, "call_invalid_json", None]


def test_sampled_ids_are_not_those_of_the_tokenizer():
    codec = reference.codec()
    ids = codec.encode_assistant(reference.called(("look", {"place": "plain"})))
    other = reference.respelled(codec, ids)
    text = codec.tokenizer.decode(ids)
    assert other != ids and codec.tokenizer.decode(other) == text and codec.tokenizer.encode(text) == ids
    assert codec.parse(other).message == codec.parse(ids).message


def test_the_tokenizer_is_the_same_everywhere():
    """The rows of other environments are compared with those of this one: with other versions of transformers."""
    codec = reference.codec()
    assert codec.self_check() is None
    assert codec.tokenizer.encode("Kind: plain. answer 你好") == codec.tokenizer.encode("Kind: plain. answer 你好")
    assert reference.HOSTILE in codec.tokenizer.decode(codec.prompt([{"role": "user", "content": reference.HOSTILE}]))
