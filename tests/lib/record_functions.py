"""Functions that task sets in tests name by import path."""

from __future__ import annotations

from aworld_gym.types import Score


def after_hashes(row):
    """The final answer of a worked solution that ends in ``#### answer``."""
    return row["solution"].rpartition("####")[2].strip()


def ask(row):
    """A prompt of two columns."""
    return f"{row['name']}: {row['question']}"


def shorter(truth, answer):
    """A scorer: right where the answer is no longer than the truth."""
    return Score(float(len(answer) <= len(truth)), "length")
