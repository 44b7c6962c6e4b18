"""Tool results on disk: recorded as episodes are played, and replayed without servers.

A tape is a folder. :class:`Recorder` writes what each call gave, as the server said it (before anything is cut for
the model), with what the call was and after which others of its episode it came. :class:`Replay` answers the same
calls from there, starts no server, and fails with :class:`~aworld_gym.errors.ReplayError` where something was never
asked. :class:`Cache` plays with live servers and spares them the calls of tools that say they only read.

An env plays from a tape once it was given one: ``attach(env, Replay("tape/"))``, or ``rollout(..., tape=...)``.

Where the tools are not deterministic, a call after the same calls may have given several results. A replay then stays
with what one recorded episode was given: of the same seed, sample and attempt where there is such a one, else of the
first that nobody has replayed yet. Values of the configuration or the environment that look like secrets (headers, and
what is called a key, token, secret or password) are replaced by their names before anything is written.
"""

from aworld_gym.tape.base import PLAYING, Label, Tape, attach
from aworld_gym.tape.cache import Cache
from aworld_gym.tape.record import Recorder
from aworld_gym.tape.replay import Replay

__all__ = ["PLAYING", "Cache", "Label", "Recorder", "Replay", "Tape", "attach"]
