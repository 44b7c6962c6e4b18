"""Progress, and notes on stderr: whatever stderr is, they end no run."""

import io
import sys

from episodes import episode
from rich.console import Console

from aworld_gym.progress import EpisodeProgress, stderr_console
from aworld_gym.types import Outcome


def test_a_bar_counts_what_was_played():
    shown = io.StringIO()
    with EpisodeProgress(3, console=Console(file=shown, width=120)) as bar:
        bar.add(episode(0))
        bar.add(episode(1, score=0.0))
        bar.add(episode(2, outcome=Outcome.INFRA_FAILURE, score=None))
    assert "2/3" in shown.getvalue() and "success 0.50" in shown.getvalue() and "failed attempts 1" in shown.getvalue()


def test_a_bar_on_a_terminal_that_takes_stderr_for_itself(monkeypatch):
    """Rich puts a proxy in the place of stderr, which prints through the console: that must not go round."""
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", shown)
    with EpisodeProgress(1) as bar:
        print("said meanwhile", file=sys.stderr)
        stderr_console().print("and this")
        bar.add(episode(0))
    assert "said meanwhile" in shown.getvalue() and "and this" in shown.getvalue() and "1/1" in shown.getvalue()


def test_a_console_that_never_raises(monkeypatch):
    class Broken:
        encoding = "utf-8"

        def isatty(self):
            return False

        def write(self, text):
            raise BrokenPipeError(32, "Broken pipe")

        flush = isatty

    for broken in (Broken(), None):
        monkeypatch.setattr(sys, "stderr", broken)
        stderr_console().print("lost")
        with EpisodeProgress(2) as bar:
            bar.add(episode(0))
