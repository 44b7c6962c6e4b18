"""Against a real vLLM: what it answers, that rollouts are exact, and that the stand-in speaks as it does."""

import asyncio
import json
import os
import time
import urllib.error
import urllib.request

import psutil
import pytest
import torch
from cli_process import only_json, process
from say_env import ENV_ID
from transformers import AutoModelForCausalLM
from vllm_stand_in import VllmStandIn, scripted

from aworld_gym.errors import ConfigError
from aworld_gym.metrics import summarize
from aworld_gym.rollout import make_items, rollout
from aworld_gym.token_policy import TokenPolicy
from aworld_gym.toolchain import loop
from aworld_gym.types import Outcome
from aworld_gym.vllm import Sampling, VllmGenerator, VllmPolicy

pytestmark = pytest.mark.timeout(900)  # the first test waits for the server

EXACT = 1e-3
"""By how much (nats) a log-probability may differ between two implementations in single precision."""


@pytest.fixture(scope="module")
def model(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def generator(server, codec, **options):
    return VllmGenerator(server.base_url, codec, api_key=server.api_key, **options)


def sampled(server, codec, *prompts, limit=32, keys=None, **options):
    """What is sampled for each prompt, all at once."""

    async def talk():
        asked = generator(server, codec, **options)
        try:
            pairs = zip(keys or range(len(prompts)), prompts, strict=True)
            return await asyncio.gather(*(asked.generate(key, list(ids), limit) for key, ids in pairs))
        finally:
            await asked.aclose()

    return asyncio.run(talk())


def expected(model, prompt, ids, temperature=1.0, top_k=0):
    """Log-probabilities of ``ids`` after ``prompt``, by transformers."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1].float() / temperature
    if top_k:
        least = logits.topk(top_k).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    return logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()


def apart(ours, theirs):
    return max(abs(a - b) for a, b in zip(ours, theirs, strict=True))


def prompts(codec, count):
    import tiny_model
    from say_env import WORDS

    words = [WORDS[k % len(WORDS)] for k in range(count)]
    return [codec.prompt([{"role": "user", "content": f"say {word}"}], tiny_model.TOOLS) for word in words]


def test_rollouts_are_exact(server, codec, model):
    """The ids of an episode are what was sampled, and their log-probabilities what transformers computes on them."""
    asked = generator(server, codec)
    policy = TokenPolicy(codec, asked.generate, max_tokens=400)
    episodes = rollout(ENV_ID, policy, items=make_items(32, group_size=4), concurrency=32)
    assert summarize(episodes)["valid"] == 32 and 0 < summarize(episodes)["success_rate"] <= 1
    worst, turns = 0.0, 0
    for k, episode in enumerate(episodes):
        trajectory = policy.agents[k].trajectory()
        ids = codec.prompt(episode.prompt, episode.tools)
        for step in episode.steps:
            ids += step.sampled["token_ids"]
            ids += codec.extend(step.sampled["token_ids"], step.observation) if step.observation else ()
        # After the last step either nothing follows here, or a turn that was cut, which the env was not shown.
        shared = min(len(ids), len(trajectory.ids))
        assert list(trajectory.ids[:shared]) == ids[:shared] and len(ids) > len(trajectory.prompt_ids)
        theirs = expected(model, trajectory.prompt_ids, trajectory.response_ids)
        pairs = zip(trajectory.logprobs, theirs, trajectory.mask, strict=True)
        worst = max(worst, *(abs(a - b) for a, b, bit in pairs if bit))
        turns += len(trajectory.turns)
    print(f"{turns} turns of 32 episodes; the largest difference of a log-probability is {worst:.1e}")
    assert worst < EXACT


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0.7),
        Sampling(temperature=1.5, top_k=5),
        Sampling(top_k=2),
        Sampling(temperature=0.0),
    ],
    ids=["plain", "cool", "top 5", "top 2", "greedy"],
)
def test_logprobs_are_those_of_what_is_drawn_from(server, codec, model, sampling):
    asked = prompts(codec, 6)
    for prompt, (ids, logprobs) in zip(asked, sampled(server, codec, *asked, sampling=sampling), strict=True):
        temperature = sampling.temperature or 1.0
        assert apart(logprobs, expected(model, prompt, ids, temperature, sampling.top_k)) < EXACT
        assert all(token not in codec.stop_ids for token in ids[:-1])
        assert ids[-1] in codec.stop_ids or len(ids) == 32


def test_draws_are_distributed_as_the_model_says(server, codec, model):
    """Half of what is drawn first has at least the median probability: no default of the server's cuts the tail."""
    prompt = [codec.tokenizer.convert_tokens_to_ids("<|im_start|>")]
    count = 400
    drawn = [ids[0] for ids, _ in sampled(server, codec, *[prompt] * count, limit=1)]
    with torch.no_grad():
        probability = model(torch.tensor([prompt])).logits[0, -1].softmax(-1)
    for token in probability.topk(4).indices.tolist():
        p = probability[token].item()
        assert abs(drawn.count(token) / count - p) < 4 * (p * (1 - p) / count) ** 0.5 + 1e-9
    rare = probability < 0.02
    share, p = sum(bool(rare[token]) for token in drawn) / count, probability[rare].sum().item()
    assert abs(share - p) < 4 * (p * (1 - p) / count) ** 0.5 + 1e-9


def test_a_run_is_repeated_by_its_seed(server, codec, folder):
    def run(seed=0, concurrency=16):
        policy = VllmPolicy(str(folder), base_url=server.base_url, api_key=server.api_key, seed=seed)
        episodes = rollout(ENV_ID, policy, items=make_items(16, group_size=4), concurrency=concurrency)
        return [[list(step.sampled["token_ids"]) for step in episode.steps] for episode in episodes]

    first = run()
    assert run(concurrency=3) == first, "whatever else the server does meanwhile"
    assert run(seed=1) != first
    assert any(first[k] != first[k + 1] for k in range(0, 16, 4)), "a group's episodes are sampled apart"


def test_the_context_ends_an_episode_as_a_budget_does(server, folder):
    policy = VllmPolicy(str(folder), base_url=server.base_url, api_key=server.api_key)
    loop.run(policy.astart())
    assert policy.max_context == 1024
    loop.run(policy.aclose())
    policy = VllmPolicy(str(folder), base_url=server.base_url, api_key=server.api_key, max_context=60)
    assert rollout(ENV_ID, policy, episodes=1)[0].outcome == Outcome.MAX_TOKENS


def test_a_server_with_another_model_is_refused(server, codec, tmp_path):
    import tiny_model

    other = tiny_model.tokenizer()
    other.add_tokens(["42"])
    other.save_pretrained(tmp_path)
    policy = VllmPolicy(str(tmp_path), base_url=server.base_url, api_key=server.api_key)
    with pytest.raises(ConfigError, match="another tokenizer"):
        rollout(ENV_ID, policy, episodes=1)


def test_the_command_line(server, folder):
    args = ["eval", f"say_env:{ENV_ID}", "--policy", "vllm", "--model", str(folder), "--base-url", server.base_url]
    with process(*args, "--api-key", server.api_key, "--episodes", "8", "--json") as done:
        out, err = done.communicate(timeout=300)
    assert done.returncode == 0, err
    assert only_json(out)["valid"] == 8


# ---- the stand-in ---------------------------------------------------------------------------------------------------


def ask(url, key, path, body=None):
    """(status, JSON body) of a request."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, data, headers), timeout=120) as reply:
            return reply.status, json.loads(reply.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")


BASE = {"max_tokens": 4, "temperature": 1.0, "seed": 3, "logprobs": 0, "return_token_ids": True}
REQUESTS = {
    "ids": {"prompt": [5, 6, 7]},
    "text": {"prompt": "say red<|im_end|>", "add_special_tokens": False},
    "no ids back": {"prompt": [5], "return_token_ids": False},
    "no logprobs": {"prompt": [5], "logprobs": None},
    "listed": {"prompt": [5], "logprobs": 1, "max_tokens": 1},
    "to the end of the context": {"prompt": [5] * 1022, "max_tokens": 40},
    "over the context": {"prompt": [5] * 1025},
    "another model": {"prompt": [5], "model": "no such model"},
    "too warm": {"prompt": [5], "temperature": 3.0},
}


def form(value):
    """What a JSON value looks like: field names and kinds, numbers as one kind."""
    if isinstance(value, dict):
        return {name: form(item) for name, item in value.items()}
    if isinstance(value, list):
        return [form(value[0])] if value else []
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def plain(body):
    """A reply without what is not compared: texts as keys."""
    for choice in body.get("choices", ()):
        if choice["logprobs"]:
            choice["logprobs"]["top_logprobs"] = [list(each.values()) for each in choice["logprobs"]["top_logprobs"]]
        choice["finish_reason"] = choice["stop_reason"] = ""
    return body


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_the_stand_in_answers_as_vllm_does(server, codec, folder, request_):
    body = {"model": str(folder), **BASE, **request_}
    with VllmStandIn(codec, scripted(codec), name=str(folder), key="k") as stand_in:
        status, theirs = ask(server.base_url, server.api_key, "/completions", body)
        assert ask(stand_in.url, "k", "/completions", body)[0] == status
        ours = ask(stand_in.url, "k", "/completions", body)[1]
    assert form(plain(ours)) == form(plain(theirs))
    if status == 200:
        assert ours["usage"]["prompt_tokens"] == theirs["usage"]["prompt_tokens"]
        first, second = ours["choices"][0], theirs["choices"][0]
        assert first["prompt_token_ids"] == second["prompt_token_ids"]
        if len(body["prompt"]) > 1000:
            assert len(first["token_ids"]) == len(second["token_ids"]) == 2
    else:
        words = set(theirs["error"]["message"].lower().split()) & set(ours["error"]["message"].lower().split())
        assert len(words) > 3 and theirs["error"]["code"] == ours["error"]["code"]


def test_the_stand_in_lists_models_as_vllm_does_and_asks_for_the_key(server, codec, folder):
    with VllmStandIn(codec, scripted(codec), name=str(folder), key="k") as stand_in:
        theirs, ours = (
            ask(url, key, "/models") for url, key in ((server.base_url, server.api_key), (stand_in.url, "k"))
        )
        assert form(ours[1]["data"][0]).items() <= form(theirs[1]["data"][0]).items()
        assert ours[1]["data"][0]["max_model_len"] == theirs[1]["data"][0]["max_model_len"] == 1024
        for url in (server.base_url, stand_in.url):
            for path, body in (("/models", None), ("/completions", {"model": str(folder), "prompt": [1], **BASE})):
                assert ask(url, "wrong", path, body) == (401, {"error": "Unauthorized"})


def test_stop_ids_are_obeyed_alike(server, codec, folder):
    """Ours are; the model's own are not."""
    prompt = prompts(codec, 1)[0]
    ids = sampled(server, codec, prompt, sampling=Sampling(temperature=0.0))[0][0]
    assert ids[-1] == codec.tokenizer.eos_token_id
    body = {"model": str(folder), "prompt": prompt, **BASE, "temperature": 0.0, "ignore_eos": True, "max_tokens": 32}
    choice = ask(server.base_url, server.api_key, "/completions", {**body, "stop_token_ids": [ids[3]]})[1]["choices"][0]
    assert (choice["token_ids"], choice["finish_reason"]) == (ids[: ids.index(ids[3]) + 1], "stop")
    choice = ask(server.base_url, server.api_key, "/completions", body)[1]["choices"][0]
    assert (len(choice["token_ids"]), choice["finish_reason"]) == (32, "length")


# ---- speed, and the end ---------------------------------------------------------------------------------------------


def test_many_at_once(server, codec):
    asked = prompts(codec, 64)
    began = time.monotonic()
    out = sampled(server, codec, *asked)
    seconds, tokens = time.monotonic() - began, sum(len(ids) for ids, _ in out)
    print(f"64 requests at once: {tokens} ids in {seconds:.1f} s, {tokens / seconds:.0f} a second")
    assert all(ids for ids, _ in out)


def test_more_prompts_than_the_engine_takes_in_a_batch(server, codec):
    """The engine of 0.32 dies on a CPU where it cuts the prompt of a request with a seed in two."""
    asked = [[5 + k % 7] * (700 + 3 * k) for k in range(16)]
    assert all(ids for ids, _ in sampled(server, codec, *asked, limit=4))


def test_the_end(shared_memory, server):
    """Last: nothing of the server is left."""
    processes = psutil.Process(server._process.pid).children(recursive=True)
    assert len(processes) > 1, "the server has its engine in another process"
    loop.run(server.aclose())
    assert not [each for each in processes if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
    left = {name for name in set(os.listdir("/dev/shm")) - shared_memory if name.startswith(("psm_", "sem."))}
    assert not left, "in shared memory"
