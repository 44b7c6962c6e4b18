"""Wrappers for tool envs: step-wise reward shaping, whole transcripts, raw-text actions, recording.

All of them are recorded in the env's spec (JSON arguments), so ``gym.make(spec)`` rebuilds them in another
process, and all of them step asynchronously where the env below does.
"""

from aworld_gym.wrappers.base import ToolWrapper
from aworld_gym.wrappers.raw_text import RawTextAction
from aworld_gym.wrappers.record import RecordEpisodes
from aworld_gym.wrappers.shaping import RewardShaping
from aworld_gym.wrappers.transcript import TranscriptObservation

__all__ = ["RawTextAction", "RecordEpisodes", "RewardShaping", "ToolWrapper", "TranscriptObservation"]
