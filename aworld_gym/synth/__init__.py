"""Task synthesis for any toolchain: a language model proposes tasks, the tools themselves say what is true.

A proposal is a question with a worked solution: the calls to make and where the answer stands in their results. It
becomes a task only after it passed every gate (:data:`GATES`): it is executed, twice, and asked of the model without
tools. :func:`synthesize` runs the whole; ``aworld-gym synth`` calls it.
"""

from aworld_gym.synth.gates import ACCEPTED, GATES
from aworld_gym.synth.run import synthesize
from aworld_gym.synth.settings import Report, Settings

__all__ = ["ACCEPTED", "GATES", "Report", "Settings", "synthesize"]
