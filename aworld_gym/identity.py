"""Which run an episode is of: what is recorded of env and policy, and whether a journal may be continued with others.

An episode names its env and the env's whole spec, its policy and the policy's settings, the manifest that its task is
of, and the package versions. All but the package versions must be equal before episodes of two calls are put together.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import Any

import gymnasium as gym

from aworld_gym.errors import ConfigError
from aworld_gym.making import env_id_of, spec_json
from aworld_gym.policies.base import Policy
from aworld_gym.types import Episode


def versions(policy: Policy, manifest: str | None = None) -> Mapping[str, str]:
    """What an episode depends on besides its env.

    Package versions, the policy's name and its settings as JSON, and the hash of the manifest where there is one.
    """
    return _versions(policy.name, settings_json(policy), manifest)


def settings_json(policy: Policy) -> str:
    """The policy's ``settings`` as one line of JSON, ``{}`` where it has none.

    A value that JSON lacks stands as the name of its type: an address in memory would differ in every process.

    Raises:
        ConfigError: ``settings`` is not a mapping.
    """
    settings = getattr(policy, "settings", None) or {}
    if not isinstance(settings, Mapping):
        raise ConfigError(f"policy {policy.name!r}: settings must be a mapping, got {type(settings).__name__}")
    plain = {str(name): value for name, value in settings.items()}
    return json.dumps(plain, sort_keys=True, default=lambda value: f"<{type(value).__qualname__}>")


def check_same_run(
    done: Iterable[Episode], env: gym.Env, policy: Policy, *, where: str, also: str, manifest: str | None = None
) -> None:
    """Refuse to continue a journal of something else: its episodes would be reported as this run's.

    Args:
        done: what the journal has.
        env: the env that this run plays in.
        policy: the policy that plays.
        where: the journal, for the message.
        also: another name that this env's episodes may have: those whose env could not be made.
        manifest: the hash of the manifest that this run plays; None where it draws tasks by seed.

    Raises:
        ConfigError: an episode is of another manifest, env, env spec, policy or policy settings; it says how they
            differ.
    """
    now = {
        "manifest": manifest,
        "env": env_id_of(env),
        "env spec": _parsed(spec_json(env)),
        "policy": policy.name,
        "policy settings": json.loads(settings_json(policy)),
    }
    for env_id, name, settings, spec, began, listed in dict.fromkeys(map(_what, done)):
        was = {
            "manifest": listed,
            "env": now["env"] if env_id == also else env_id,
            "env spec": now["env spec"] if spec is None and not began else _parsed(spec),
            "policy": now["policy"] if name is None else name,
            "policy settings": now["policy settings"] if settings is None else json.loads(settings),
        }
        for what in now:
            if was[what] != now[what]:
                old, new = _differing(was[what], now[what])
                raise ConfigError(
                    f"{where} is of another run: its {what} is {old!r}, this one's is {new!r}; "
                    "resume with the same settings, or write to another place"
                )


def _what(episode: Episode) -> tuple[str, str | None, str | None, str | None, bool, str | None]:
    """What is compared of an episode. One whose env could not be made has no spec, and says nothing about it."""
    known, began = episode.versions, bool(episode.prompt)
    policy, settings, manifest = (known.get(name) for name in ("policy", "policy_settings", "manifest"))
    return episode.env_id, policy, settings, episode.spec, began, manifest


def _differing(was: Any, now: Any) -> tuple[Any, Any]:
    """The two, and of two mappings only what differs."""
    if not (isinstance(was, dict) and isinstance(now, dict)):
        return was, now
    names = sorted(name for name in {*was, *now} if was.get(name) != now.get(name))
    if len(names) == 1 and names[0] in was and names[0] in now:
        old, new = _differing(was[names[0]], now[names[0]])
        return {names[0]: old}, {names[0]: new}
    return {n: was[n] for n in names if n in was}, {n: now[n] for n in names if n in now}


def _parsed(text: str | None) -> Any:
    return None if text is None else json.loads(text)


@lru_cache
def _versions(policy: str, settings: str, manifest: str | None) -> Mapping[str, str]:
    found = {"policy": policy, "policy_settings": settings, "python": platform.python_version()}
    if manifest is not None:
        found["manifest"] = manifest
    for name in ("aworld-gym", "gymnasium", "mcp"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # a source tree that was not installed
            continue
    return MappingProxyType(found)
