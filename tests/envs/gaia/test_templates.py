"""Templates: enough of them, spread over splits, levels, worlds and media, and each in words that others use too."""

from __future__ import annotations

import itertools
import re
from collections import Counter, defaultdict

import pytest

from aworld_gym.types import Task
from envs.gaia import sentences, wording
from envs.gaia.levels import TOOL_KINDS
from envs.gaia.splits import SPLITS, TEMPLATE_SPLITS
from envs.gaia.tasks import GaiaTasks
from envs.gaia.templates import templates
from envs.gaia.world import FLAVOURS, TRAINING_FLAVOURS

LOWER = [one for one in templates().values() if one.level < 3]
MEDIA = {
    "document": ("docx", "pdf", "html", "md", "txt", "json", "jsonl", "xml", "pptx", "eml"),
    "table": ("csv", "tsv", "xlsx"),
    "picture": ("png",),
    "recording": ("wav",),
    "database": ("sqlite",),
    "archive": ("zip",),
    "program": ("py",),
}


def tasks_of(name: str, flavour: str, count: int, first: int = 0) -> list[Task]:
    """The first tasks of a template in a flavour."""
    split = TEMPLATE_SPLITS[name]
    source = GaiaTasks(split)
    return [source.get(f"gaia/{split}/{flavour}/{name}/{number:06d}") for number in range(first, first + count)]


def test_there_are_enough_templates_of_the_lower_levels() -> None:
    assert len(LOWER) >= 36
    for split, level in itertools.product(SPLITS, (1, 2)):
        assert sum((one.split, one.level) == (split, level) for one in LOWER) >= 6


@pytest.mark.parametrize("split", SPLITS)
def test_a_split_has_every_kind_of_tool_and_most_media(split: str) -> None:
    kinds: set[str] = set()
    endings: set[str] = set()
    for one in LOWER:
        if one.split == split:
            for task in tasks_of(one.name, "synthetic", 12):
                kinds |= set(task.metadata["tool_kinds"])
                named = [*task.metadata["files"], *(need.split("!")[-1] for need in task.metadata["needs"])]
                endings |= {name.rpartition(".")[2] for name in named if "://" not in name}
    assert kinds == set(TOOL_KINDS.values())
    for medium, known in MEDIA.items():
        assert endings & set(known), medium
    assert len(endings & set(itertools.chain(*MEDIA.values()))) >= 13


@pytest.mark.parametrize("name", [one.name for one in LOWER])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_template_works_over_every_world(name: str, flavour: str) -> None:
    for task in tasks_of(name, flavour, 4, first=400):
        assert task.metadata["world"] == flavour
        assert task.level == templates()[name].level


def test_a_template_says_what_it_asks() -> None:
    assert all(one.make.__doc__ for one in templates().values())
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in templates())


def test_the_wording_does_not_give_the_template_away() -> None:
    """Every frame is used by every template whose answers are whole numbers, and none much more than others."""
    used: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    frames = {frame: frame.format("").rstrip("?. ") for frame in sentences.FRAMES["thing"]}
    for one in LOWER:
        for flavour in TRAINING_FLAVOURS:
            for task in tasks_of(one.name, flavour, 40):
                if task.answer["type"] == "int":
                    found = [frame for frame, start in frames.items() if f"{start} " in task.prompt]
                    used["int", one.name].update(found)
    for (_, name), counts in used.items():
        if counts.total() >= 70:
            assert set(counts) == set(frames), name
            assert max(counts.values()) < 0.35 * counts.total()


def test_productions_have_several_paraphrases() -> None:
    counts = [len(ways) for productions in wording.GRAMMAR.values() for ways in productions.values()]
    assert sum(count > 1 for count in counts) >= 0.8 * len(counts)
    assert all(len(frames) >= 8 for frames in sentences.FRAMES.values())
