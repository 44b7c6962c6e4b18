"""The command line. Thin: it reads options, calls the library, and prints.

With ``--json`` a command prints exactly one JSON object on stdout: its result, or ``{"error": ...}``. Whatever else
is printed, by any library or child process, goes to stderr. Exit status: 0 done, 1 failed, 2 the command or its
configuration cannot work, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import dataclasses
import logging
import sys
import time
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer

from aworld_gym import __version__
from aworld_gym.cli_host import serve, token
from aworld_gym.cli_output import FAILED, claim_descriptors, reporting
from aworld_gym.cli_rescore import rescore
from aworld_gym.cli_support import (
    EnvChoice,
    adapter,
    check_output,
    choose_engine,
    choose_env,
    choose_manifest,
    env_tools,
    key_values,
    load_settings,
    open_tape,
    see_current_folder,
    server_tools,
)
from aworld_gym.cli_synth import synth
from aworld_gym.cli_usage import Commands
from aworld_gym.doctor import adapters_here
from aworld_gym.errors import ConfigError

app = typer.Typer(
    cls=Commands,
    help="Gymnasium environments for training language-model agents that use tools.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

EnvId = Annotated[str, typer.Argument(metavar="ENV", help="An env id, such as AWorld/Gaia-v0.")]
EnvKwargs = Annotated[str | None, typer.Option(help="The env's arguments as one JSON object.")]
EnvArgs = Annotated[
    list[str] | None,
    typer.Option(
        "-k", metavar="KEY=VALUE", help="One argument of the env; the value is JSON, or else text. Repeatable."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, everything else on stderr.")]


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"aworld-gym {__version__}")
        raise typer.Exit


@app.callback()
def start(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Before every command."""
    claim_descriptors()
    see_current_folder()


@app.command()
def tools(
    env: Annotated[str | None, typer.Argument(metavar="ENV", help="An env id, such as AWorld/Gaia-v0.")] = None,
    mcp_config: Annotated[Path | None, typer.Option(help="An mcpServers file, instead of an env.")] = None,
    env_kwargs: EnvKwargs = None,
    k: EnvArgs = None,
    seed: Annotated[int, typer.Option(help="Of the task whose tools are shown.")] = 0,
    as_json: Json = False,
) -> None:
    """List the tools of an env or of an mcpServers file, as the model will see them."""
    with reporting(as_json) as out:
        if (env is None) == (mcp_config is None):
            raise ConfigError("give either an env id or --mcp-config")
        if mcp_config is not None:
            found, source = server_tools(mcp_config), str(mcp_config)
        else:
            choice = choose_env(str(env), env_kwargs, k)
            found, source = env_tools(choice.spec, seed), choice.spec.id
        out.result({"source": source, "tools": found}, show=out.tools)


@app.command("eval")
def evaluate(
    env: EnvId,
    policy: Annotated[
        str,
        typer.Option(help="oracle, random, openai, vllm, or package.module:name of a factory or a function of yours."),
    ] = "oracle",
    episodes: Annotated[int | None, typer.Option(help="How many; 50, or what --manifest has.")] = None,
    manifest: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Play exactly the tasks of a manifest, --group-size times each: one that the env has (for GAIA "
            "validation or test), a file, or all: every task of an env that has a list of them.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The first seed.")] = 0,
    concurrency: Annotated[int, typer.Option(help="Episodes at once.")] = 16,
    group_size: Annotated[int, typer.Option(help="Episodes that share a seed, and so a task.")] = 1,
    retries: Annotated[int, typer.Option(help="Further tries of an episode that infrastructure spoiled.")] = 1,
    deadline: Annotated[float | None, typer.Option(help="Seconds for one episode, the policy's included.")] = None,
    output: Annotated[Path | None, typer.Option(help="A folder for episodes.jsonl and summary.json.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --output.")] = False,
    record: Annotated[Path | None, typer.Option(help="A folder to record all tool results to.")] = None,
    replay: Annotated[
        Path | None, typer.Option(help="Take all tool results from a recording; no server is started.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="A folder that keeps the results of tools that only read, to ask them once.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Where episodes are played: local, or ray: by workers of a Ray cluster.")
    ] = "local",
    ray_address: Annotated[
        str | None, typer.Option(help="Of a cluster; else RAY_ADDRESS is read, else one is started here.")
    ] = None,
    ray_workers: Annotated[
        int | None, typer.Option(help="Processes that play; else one for 32 episodes at once, one a node at least.")
    ] = None,
    ray_cpus: Annotated[float | None, typer.Option(help="Logical CPUs that each worker asks for; 1.")] = None,
    ray_resource: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=AMOUNT", help="A custom resource that each worker asks for. Repeatable."),
    ] = None,
    ray_env: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="An environment variable for the workers. Repeatable.")
    ] = None,
    env_kwargs: EnvKwargs = None,
    k: EnvArgs = None,
    policy_args: Annotated[
        list[str] | None, typer.Option("-p", metavar="KEY=VALUE", help="One argument of the policy. Repeatable.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "--llm-model-name",
            help="For openai (else LLM_MODEL_NAME is read), and vllm: a folder or hub name.",
        ),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            "--base-url", "--llm-base-url", help="For openai (else LLM_BASE_URL is read); for vllm a running server."
        ),
    ] = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", "--llm-api-key", help="For openai and vllm; else LLM_API_KEY is read.")
    ] = None,
    vllm_args: Annotated[
        str | None, typer.Option(help="Arguments of `vllm serve`, as one text, for a server that vllm starts itself.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Play episodes with a policy and say how it did.

    Finished episodes are in episodes.jsonl at once; a run that broke continues with --resume.
    """
    with reporting(as_json) as out:
        from aworld_gym import policies
        from aworld_gym.metrics import METRIC, Metrics
        from aworld_gym.rollout import DEFAULT_EPISODES, iterate

        if resume and output is None:
            raise ConfigError("--resume needs --output, the folder of the run to continue")
        out.kept = (
            "; finished episodes are kept, go on with --resume" if output else "; nothing is kept without --output"
        )
        where = choose_engine(
            engine, address=ray_address, workers=ray_workers, num_cpus=ray_cpus, resources=ray_resource, env=ray_env
        )
        choice, listed = choose_manifest(choose_env(env, env_kwargs, k), manifest)
        options = key_values(policy_args)
        named = {"base_url": base_url, "api_key": api_key, "model": model, "args": vllm_args}
        options |= {name: value for name, value in named.items() if value is not None}
        if listed is not None:
            out.note(f"checking the {len(listed.tasks)} tasks of manifest {listed.name} ({listed.hash})")
        logging.getLogger("aworld_gym.vllm").setLevel(logging.INFO)  # a server takes a minute or more to start
        metrics, began = Metrics(), time.monotonic()
        with open_tape(record, replay, cache, resume=resume) as tape:
            played = iterate(
                choice.spec,
                policies.make(policy, **options),
                progress=True,
                episodes=episodes,
                seed=seed,
                concurrency=concurrency,
                group_size=group_size,
                manifest=listed,
                retries=retries,
                deadline_s=deadline,
                journal=output / "episodes.jsonl" if output else None,
                resume=resume,
                tape=tape,
                engine=where,
            )
            # What Ray prints beside the episodes (a worker that died, say) is no result.
            with redirect_stdout(sys.stderr) if engine == "ray" else nullcontext():
                for episode in played:
                    metrics.add(episode)
        seeds = len(listed.tasks) if listed else (DEFAULT_EPISODES if episodes is None else episodes) // group_size
        result = {
            **_setting(choice, policy, options),
            "metric": METRIC,
            "manifest": None if listed is None else listed.describe(),
            **metrics.summary(),
            "seeds": list(range(seed, seed + seeds)),
            "group_size": group_size,
            "tape": _given(record=record, replay=replay, cache=cache),
            "engine": engine,
            "wall_s": round(time.monotonic() - began, 3),
            "episodes_path": str(output / "episodes.jsonl") if output else None,
        }
        try:
            if output:
                out.write(output / "summary.json", result)
        finally:
            out.result(result, show=out.summary)
        if not result["valid"]:
            counts = ", ".join(f"{kind} {count}" for kind, count in result["failures"].items())
            again = "; mend it, then --resume plays them again" if output else ""
            out.failed(f"nothing was measured: no episode is valid ({counts}); what failed is said above{again}")
            raise typer.Exit(FAILED)


@app.command()
def train(
    env: EnvId,
    model: Annotated[str, typer.Option(help="A folder or a hub name.")],
    output: Annotated[Path, typer.Option(help="A folder for checkpoints, metrics and episodes.")],
    given: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Settings of the trainer, as with --set.")
    ] = None,
    trainer: Annotated[str, typer.Option(help=f"{', '.join(adapters_here())}.")] = "trl",
    config: Annotated[
        Path | None, typer.Option(help="The trainer's own settings: a YAML or JSON file, passed on as it is.")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="One more setting. Repeatable.")
    ] = None,
    env_kwargs: EnvKwargs = None,
    k: EnvArgs = None,
    as_json: Json = False,
) -> None:
    """Train a model on an env with a framework's own trainer."""
    with reporting(as_json) as out:
        logging.getLogger("adapters").setLevel(logging.INFO)  # which settings it chose itself
        check_output(output)
        choice = choose_env(env, env_kwargs, k)
        settings = load_settings(config) if config else None
        chosen = {"model": model, "output_dir": str(output), "config": settings}
        more = key_values([*(given or ()), *(overrides or ())])
        for name in chosen.keys() & more.keys():
            raise ConfigError(f"--set {name}: use --{name.removesuffix('_dir')}")
        result = adapter(trainer).train(choice.spec, **chosen, **more)
        # Not asdict: it rebuilds what the result holds, and a Counter does not survive that.
        fields = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
        out.result({"trainer": trainer, **fields}, show=out.training)


@app.command()
def doctor(
    fast: Annotated[bool, typer.Option("--fast", help="Do not import the trainers to see whether they work.")] = False,
    as_json: Json = False,
) -> None:
    """Say what is installed, which trainers can run, what is missing and how to get it."""
    with reporting(as_json) as out:
        from aworld_gym.doctor import report

        out.result(report(probe=not fast, say=out.note), show=out.findings)


app.command()(rescore)
app.command()(synth)
app.command()(serve)
app.command()(token)


def _given(**paths: Path | None) -> dict[str, str] | None:
    return {name: str(path) for name, path in paths.items() if path is not None} or None


def _setting(choice: EnvChoice, policy: str, options: dict[str, Any]) -> dict[str, Any]:
    from aworld_gym.policies import SECRETS

    shown = {name: value for name, value in options.items() if name not in SECRETS}
    return {
        "env_id": choice.spec.id,
        "env_kwargs": choice.kwargs,
        "split": choice.setting("split"),
        "scorer": choice.scorer,
        "policy": policy,
        "policy_args": shown,
    }
