"""When a tool fails because its machine does: a full disk, no more processes, a query killed from outside.

Such a failure is nobody's answer. The server marks it (:func:`aworld_gym.toolchain.messages.mark`), and the episode
ends as ``infra_failure`` instead of being scored as if the model had made a mistake. No model can bring it about: what
it writes, starts and opens has limits of its own, which are met first and told as the tool's refusal.
"""

from __future__ import annotations

import errno

_ERRNOS = frozenset(
    {
        errno.EAGAIN,
        errno.EDQUOT,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EROFS,
        errno.ESTALE,
    }
)


class MachineFault(Exception):
    """The machine fails, in the words of whoever notices."""


def machine_fault(error: BaseException) -> str | None:
    """What failed, where that is the machine; None where it is not.

    The whole chain is looked at: readers turn what they meet into refusals for the model.
    """
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if isinstance(link, MachineFault):
            return str(link)
        if isinstance(link, OSError) and link.errno in _ERRNOS:
            return f"{type(link).__name__}: {link.strerror}"
        link = link.__cause__ or link.__context__
    return None
