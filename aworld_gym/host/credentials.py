"""Bearer tokens: JSON Web Tokens, made and checked by PyJWT, with one secret that host and operator share.

A token says who may come (``sub``), for which toolchains (``scope``) and until when (``exp``). Nothing that is said
about a refused token repeats any of it: messages are a fixed set.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aworld_gym.errors import ConfigError, MissingDependencyError

SECRET_VAR = "AWORLD_HOST_SECRET"
"""Holds the secret; or several, separated by commas, of which the first signs and all are accepted."""
SECRET_FILE_VAR = "AWORLD_HOST_SECRET_FILE"
"""Names a file with the same: a container's environment is shown to whoever may look at the container."""
ISSUER = "aworld-gym"
AUDIENCE = "aworld-gym-host"
ALGORITHM = "HS256"
MIN_SECRET_CHARS = 32
"""What RFC 7518 asks of a key for HS256, in bytes."""
MAX_TOKEN_CHARS = 4096
_PR_SET_DUMPABLE = 4
LEEWAY_S = 5.0
"""How far the clocks of two machines may differ."""
_REMEMBERED = 4096  # good tokens
ALL = "*"
"""The scope of every toolchain."""


class Refused(Exception):
    """A request whose token does not do.

    Args:
        status: 401, or 403 where the token is good and its scope is not enough.
        error: RFC 6750's code, empty where there was no token.
        reason: for the client, in words.
    """

    def __init__(self, status: int, error: str, reason: str):
        super().__init__(reason)
        self.status, self.error, self.reason = status, error, reason

    @property
    def challenge(self) -> str:
        """The ``WWW-Authenticate`` header."""
        parts = ['Bearer realm="aworld-gym"']
        if self.error:
            parts += [f'error="{self.error}"', f'error_description="{self.reason}"']
        return ", ".join(parts)


@dataclass(frozen=True)
class Claims:
    """What a good token says."""

    subject: str
    """Whose it is; a session can be used by its opener's tokens only."""
    scopes: frozenset[str]
    expires: float
    """Seconds since 1970."""

    def check_scope(self, toolchain: str) -> None:
        """Raise Refused if the token is not for that toolchain."""
        if not self.scopes & {toolchain, ALL}:
            raise Refused(403, "insufficient_scope", "the token is good, but not for this toolchain")


def find_secrets(environ: dict[str, str] | None = None) -> tuple[str, ...] | None:
    """The secrets in the environment, or in the file that it names; None where there are none.

    Raises:
        ConfigError: one is too short to be safe, the file cannot be read, or both are given.
    """
    environ = dict(os.environ) if environ is None else environ
    text, path = environ.get(SECRET_VAR, "").strip(), environ.get(SECRET_FILE_VAR, "")
    if path and text:
        raise ConfigError(
            f"{SECRET_VAR} and {SECRET_FILE_VAR} are both set: unset one, so that it is clear which counts"
        )
    if path:
        try:
            text = Path(path).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the secret in {path!r}, which {SECRET_FILE_VAR} names: {error}") from None
        if not text.strip():
            raise ConfigError(
                f"the file {path!r}, which {SECRET_FILE_VAR} names, is empty: openssl rand -hex 32 > {path}"
            )
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    for secret in found:
        check_secret(secret)
    return found or None


def check_secret(secret: str) -> None:
    """Raise ConfigError if a secret is too short to be safe."""
    if len(secret.encode()) < MIN_SECRET_CHARS:
        raise ConfigError(
            f"{SECRET_VAR} must have at least {MIN_SECRET_CHARS} characters, got {len(secret)}; "
            "make one with: openssl rand -hex 32"
        )


def keep_to_oneself() -> bool:
    """Close this process's memory and first environment, where the secret is, to other processes of its user.

    The programs of tool servers are such, and Linux shows them ``/proc/<pid>/environ`` otherwise. No core is dumped any
    more, either. What may trace any process (root, mostly) is not kept out.

    Returns:
        Whether the system can do so.
    """
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return int(libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)) == 0
    except (OSError, AttributeError):  # not Linux
        return False


def new_secret() -> str:
    """A secret from the system's random numbers."""
    return secrets.token_hex(32)


def mint(secret: str, scopes: Sequence[str], ttl_s: float, subject: str | None = None) -> str:
    """A token.

    Args:
        secret: the host's.
        scopes: names of toolchains, or ``*``.
        ttl_s: seconds that it is good for.
        subject: whose it is; a random name where None, so that no other token can use its sessions.

    Raises:
        ConfigError: it could not be used.
    """
    check_secret(secret)
    for scope in scopes:
        if not scope or not scope.isascii() or any(c.isspace() for c in scope):
            raise ConfigError(f"a scope is the name of a toolchain, in ASCII without spaces, or *, got {scope!r}")
    if not scopes or not ttl_s > 0:
        raise ConfigError(f"a token needs at least one scope and a time to live, got {list(scopes)!r} and {ttl_s!r}")
    now = int(time.time())
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": subject or secrets.token_hex(8),
        "iat": now,
        "nbf": now,
        "exp": now + max(1, int(ttl_s)),
        "scope": " ".join(scopes),
        "jti": secrets.token_hex(8),
    }
    return _jwt().encode(claims, secret, algorithm=ALGORITHM)


def verify(accepted: Sequence[str], header: str | None) -> Claims:
    """What the token in an ``Authorization`` header says.

    Args:
        accepted: secrets; one of them must have signed it.
        header: as it came; None where there was none.

    Raises:
        Refused: it does not do; says why.
    """
    jwt = _jwt()
    if header is None:
        raise Refused(401, "", "no token: send the header Authorization: Bearer <token>")
    scheme, _, token = header.strip().partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise Refused(401, "invalid_request", "the Authorization header is not of the form Bearer <token>")
    if len(token) > MAX_TOKEN_CHARS:
        raise _bad("the token is too long to be one of this host")
    data = None
    for secret in accepted:
        try:
            data = jwt.decode(
                token,
                secret,
                algorithms=[ALGORITHM],
                audience=AUDIENCE,
                issuer=ISSUER,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iat", "iss", "aud", "sub", "scope"]},
            )
            break
        except jwt.InvalidSignatureError:
            continue
        except jwt.PyJWTError as error:
            raise _bad(_reason(error)) from None
        except Exception:  # what a parser may raise on hostile bytes
            raise _bad("the token is not a JSON Web Token") from None
    if data is None:
        raise _bad("the token was not signed with this host's secret")
    scope = data["scope"]
    if not isinstance(scope, str) or not scope.split():
        raise _bad("the token names no scope")
    return Claims(str(data["sub"]), frozenset(scope.split()), float(data["exp"]))


class Verifier:
    """:func:`verify`, with a memory: checking a signature costs a fifth of a whole call, and clients repeat theirs.

    Args:
        accepted: secrets; one of them must have signed a token.
    """

    def __init__(self, accepted: Sequence[str]):
        self._accepted = tuple(accepted)
        self._good: dict[bytes, Claims] = {}

    def __call__(self, header: str | None) -> Claims:
        """What the token says; raises Refused as :func:`verify` does."""
        if header is None or len(header) > 2 * MAX_TOKEN_CHARS:
            return verify(self._accepted, header)
        digest = hashlib.sha256(header.encode("utf-8", "surrogatepass")).digest()  # the token itself is not kept
        known = self._good.get(digest)
        if known is not None and time.time() < known.expires:
            return known
        claims = verify(self._accepted, header)
        if len(self._good) >= _REMEMBERED:
            self._good.clear()
        self._good[digest] = claims
        return claims


def _bad(reason: str) -> Refused:
    return Refused(401, "invalid_token", reason)


def _reason(error: Exception) -> str:
    jwt = _jwt()
    for kind, text in (
        (jwt.ExpiredSignatureError, "the token has expired: make a new one with aworld-gym token"),
        (jwt.ImmatureSignatureError, "the token is not valid yet: compare the clocks of the two machines"),
        (jwt.InvalidAudienceError, "the token is for another audience"),
        (jwt.InvalidIssuerError, "the token is of another issuer"),
        (jwt.MissingRequiredClaimError, "the token lacks a claim that is needed (exp, iat, iss, aud, sub, scope)"),
        (jwt.InvalidAlgorithmError, "the token is signed with an algorithm that is not accepted"),
        (jwt.DecodeError, "the token is not a JSON Web Token"),
    ):
        if isinstance(error, kind):
            return text
    return "the token has a claim that is not valid"


def _jwt() -> Any:
    try:
        import jwt
    except ImportError as error:
        raise MissingDependencyError("an environment host needs: pip install 'aworld-gym[host]'") from error
    return jwt
