"""Episodes made without an env, for tests of what is done with them."""

from __future__ import annotations

from hypothesis import strategies as st

from aworld_gym.types import Episode, Outcome, StepRecord, ToolResult

# Lone surrogates included: a model's JSON can carry them.
texts = st.text(st.characters(exclude_categories=()), max_size=12)
rewards = st.floats(-1, 1, allow_nan=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | rewards | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
messages = st.builds(lambda content: {"role": "user", "content": content}, texts)
results = st.builds(
    ToolResult,
    call_id=texts,
    name=texts,
    content=st.lists(st.builds(lambda t: {"type": "text", "text": t}, texts), max_size=2).map(tuple),
    error=st.none() | st.sampled_from(["tool_error", "call_bad_arguments"]),
    structured=json_values,
)
steps = st.builds(
    StepRecord,
    index=st.integers(0, 9),
    action=st.builds(
        lambda content, ids: {"role": "assistant", "content": content, "sampled": {"token_ids": ids}},
        texts,
        st.lists(st.integers(0, 10), max_size=3),
    ),
    results=st.lists(results, max_size=2).map(tuple),
    observation=st.lists(messages, max_size=2).map(tuple),
    reward=rewards,
    components=st.dictionaries(texts, rewards, max_size=2),
    state_key=texts,
)
episodes = st.builds(
    Episode,
    env_id=texts,
    task_id=texts,
    seed=st.none() | st.integers(0, 5),
    attempt=st.integers(0, 3),
    group_id=st.none() | texts,
    sample=st.integers(0, 3),
    prompt=st.lists(messages, max_size=2).map(tuple),
    tools=st.lists(st.dictionaries(texts, json_values, max_size=2), max_size=2).map(tuple),
    steps=st.lists(steps, max_size=3).map(tuple),
    outcome=st.none() | st.sampled_from(Outcome),
    score=st.none() | st.floats(0, 1),
    answer=json_values,
    task=st.dictionaries(texts, json_values, max_size=2),
)


def episode(
    seed=0,
    *,
    sample=0,
    attempt=0,
    score=1.0,
    outcome=Outcome.ANSWERED,
    level=None,
    errors=(),
    turns=1,
    task_id=None,
    error_kind=None,
):
    """One record; ``errors`` are the kinds of its failed calls, besides one good call a turn."""
    good = ToolResult("c", "t", ({"type": "text", "text": "ok"},))
    bad = tuple(ToolResult("c", "t", (), error=kind) for kind in errors)
    made = tuple(
        StepRecord(k, {"role": "assistant", "content": ""}, (good, *(bad if k == 0 else ())), (), 0.0, {}, "")
        for k in range(turns)
    )
    if made and score is not None:
        made = (*made[:-1], StepRecord(turns - 1, made[-1].action, made[-1].results, (), score, {"task": score}, ""))
    return Episode(
        "E-v0",
        f"task-{seed}" if task_id is None else task_id,
        seed,
        attempt=attempt,
        group_id=str(seed),
        sample=sample,
        steps=made,
        outcome=outcome,
        score=score if outcome.valid else None,
        error_kind=error_kind,
        task={"level": level},
    )


def without_times(episode):
    """A record as a dictionary, without what a clock put into it."""
    data = episode.to_dict()
    for record in (data, *data["steps"], *(r for s in data["steps"] for r in s["results"])):
        record.pop("duration_s", None)
        record.pop("started_s", None)
    return data
