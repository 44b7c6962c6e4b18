"""``aworld-gym synth``. Reads options, calls :mod:`aworld_gym.synth`, prints its report."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from aworld_gym.cli_output import FAILED, reporting
from aworld_gym.cli_support import key_values


def synth(
    mcp_config: Annotated[Path, typer.Option(help="The mcpServers file. Its tools are called: use a copy to try on.")],
    output: Annotated[Path, typer.Option(help="A .jsonl file for the tasks; each is written at once.")],
    n: Annotated[int, typer.Option("--n", help="How many tasks.")] = 100,
    files: Annotated[Path | None, typer.Option(help="A folder of files that every task has in its workspace.")] = None,
    tools: Annotated[list[str] | None, typer.Option("--tool", help="Use this tool only. Repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="Decides which tools each round of proposals is about.")] = 0,
    batch: Annotated[int, typer.Option(help="Proposals asked for at once.")] = 5,
    samples: Annotated[int, typer.Option(help="Sample calls, before anything is proposed.")] = 12,
    closed_book: Annotated[int, typer.Option(help="Times that each question is asked without tools.")] = 4,
    similarity: Annotated[float, typer.Option(help="Share of word pairs that makes a question a repetition.")] = 0.8,
    gap: Annotated[float, typer.Option(help="Seconds between the two runs of a solution.")] = 2.0,
    steps: Annotated[str, typer.Option(help="How many calls a solution should take, in words.")] = "2 to 4",
    max_proposals: Annotated[int | None, typer.Option(help="Give up after so many; 10 x n where left out.")] = None,
    concurrency: Annotated[int, typer.Option(help="Proposals evaluated at once.")] = 4,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run of --output.")] = False,
    policy_args: Annotated[
        list[str] | None, typer.Option("-p", metavar="KEY=VALUE", help="One setting of the model. Repeatable.")
    ] = None,
    llm_base_url: Annotated[str | None, typer.Option(help="Else LLM_BASE_URL is read.")] = None,
    llm_api_key: Annotated[str | None, typer.Option(help="Else LLM_API_KEY is read.")] = None,
    llm_model_name: Annotated[str | None, typer.Option(help="Else LLM_MODEL_NAME is read.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on stdout, everything else on stderr.")
    ] = False,
) -> None:
    """Make tasks for any MCP servers with a language model, each checked by running it.

    A model proposes questions with worked solutions. A solution is run, twice, to
    get the answer; what fails, changes, repeats, or is known to the model without
    tools, is dropped, and counted. The file plays in AWorld/Mcp-v0.
    """
    with reporting(as_json) as out:
        out.kept = "; accepted tasks are kept, go on with --resume"
        from aworld_gym import policies
        from aworld_gym.synth import Settings, synthesize

        named = {"base_url": llm_base_url, "api_key": llm_api_key, "model": llm_model_name}
        options = key_values(policy_args) | {name: value for name, value in named.items() if value is not None}
        llm = policies.make("openai", **options)
        assert isinstance(llm, policies.OpenAIPolicy)
        settings = Settings(
            seed=seed,
            batch=batch,
            samples=samples,
            closed_book=closed_book,
            similarity=similarity,
            gap_s=gap,
            steps=steps,
            tools=tuple(tools) if tools else None,
        )
        report = synthesize(
            mcp_config,
            llm,
            output,
            n=n,
            settings=settings,
            files=files,
            concurrency=concurrency,
            max_proposals=max_proposals,
            resume=resume,
            say=out.note,
        )
        out.result({**dataclasses.asdict(report), "model": llm.model}, show=out.synthesis)
        if not report.complete:
            out.note(f"stopped before there were enough: {report.stopped}")
            raise typer.Exit(FAILED)
