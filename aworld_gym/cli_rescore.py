"""``aworld-gym rescore``: recorded episodes scored again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from aworld_gym.cli_output import FAILED, reporting
from aworld_gym.errors import ConfigError

_KEPT = ("episodes", "scored", "mean_score", "pass_at_1", "pass_at_1_ci95", "pass_at_k", "pass_at_k_ci95", "k")


def rescore(
    episodes: Annotated[Path, typer.Argument(metavar="EPISODES", help="An episodes.jsonl.")],
    scorer: Annotated[
        str, typer.Option(help="strict, official, another of the package's, or package.module:function of yours.")
    ] = "strict",
    output: Annotated[Path | None, typer.Option(help="A new file for the episodes with their new scores.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on stdout, everything else on stderr.")
    ] = False,
) -> None:
    """Score recorded episodes again, without tools or a model.

    Prints old and new success and which episodes changed. The file itself is left as it is; rewards stay as paid.
    """
    with reporting(as_json) as out:
        from aworld_gym.rescoring import Rescoring
        from aworld_gym.trajectory import read_jsonl, write_jsonl

        if output is not None and output.exists():
            raise ConfigError(f"--output {output} is there already, and nothing is overwritten; choose another place")
        again = Rescoring(scorer)
        rescored = again.of(read_jsonl(episodes))
        if output is not None:
            write_jsonl(output, rescored)
        else:
            for _ in rescored:
                pass
        result: dict[str, Any] = {
            "source": str(episodes),
            "scorer": scorer,
            "rescored": again.scored,
            "left": dict(sorted(again.left.items())),
            "changed": again.changed,
            "output": str(output) if output else None,
        }
        for name, metrics in (("old", again.before), ("new", again.after)):
            summary = metrics.summary()
            result[name] = {key: summary[key] for key in _KEPT}
        out.result(result, show=out.rescoring)
        if not again.scored:
            out.note("no episode could be scored")
            raise typer.Exit(FAILED)
