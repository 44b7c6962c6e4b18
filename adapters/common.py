"""What the adapters share, in one place to import from. No framework, no torch.

An adapter turns ``aworld_gym.token_policy`` episodes into its framework's tensors; whatever is the same for all
frameworks stands once, in the modules beside this one, each of which has one subject:

- ``job``, ``options``, ``settings``: a call of ``train``, how it plays episodes, a framework's settings;
- ``handover``, ``tasks``: specs and codecs; seeds, rows of a data set and the episodes of a batch;
- ``turnwise``, ``batches``: an episode for frameworks that own the loop of turns; batches for the others;
- ``episodes``, ``results``: journals, counts and metrics of episodes; what a run leaves;
- ``credit``, ``alarm``: advantages by turns; the log-probability alarm;
- ``versions``: guards over a framework's version, and imports that wait until they are needed;
- ``hf``: for those that train with transformers' Trainer.
"""

from adapters.alarm import THRESHOLD_FP32, THRESHOLD_LOW_PRECISION, LogprobAlarm
from adapters.credit import Credit
from adapters.episodes import EpisodeCounts, Journals, episode_metrics, lost_episode, mean_metrics
from adapters.handover import Env, checked_codec, env_spec, prompt_length, spec_json, spec_of
from adapters.job import MODELS, Job, check_model_folder
from adapters.options import RolloutOptions, TurnwiseOptions
from adapters.results import MetricsFile, TrainResult, refuse_mixing
from adapters.settings import read_config, say, take_rollout
from adapters.tasks import (
    DEFAULT_TASKS,
    EVAL_SEEDS,
    SEEDS_PER_RUN,
    number_items,
    task_message,
    task_rows,
    task_seeds,
    the_one,
)
from adapters.turnwise import EnvEpisode
from aworld_gym.trained import RolloutRows, TrainedRow

__all__ = [
    "DEFAULT_TASKS",
    "EVAL_SEEDS",
    "MODELS",
    "SEEDS_PER_RUN",
    "THRESHOLD_FP32",
    "THRESHOLD_LOW_PRECISION",
    "Credit",
    "Env",
    "EnvEpisode",
    "EpisodeCounts",
    "Job",
    "Journals",
    "LogprobAlarm",
    "MetricsFile",
    "RolloutOptions",
    "RolloutRows",
    "TrainResult",
    "TrainedRow",
    "TurnwiseOptions",
    "check_model_folder",
    "checked_codec",
    "env_spec",
    "episode_metrics",
    "lost_episode",
    "mean_metrics",
    "number_items",
    "prompt_length",
    "read_config",
    "refuse_mixing",
    "say",
    "spec_json",
    "spec_of",
    "take_rollout",
    "task_message",
    "task_rows",
    "task_seeds",
    "the_one",
]
