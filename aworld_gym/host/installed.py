"""Whether the extra ``host`` is here. Nothing of it is needed to import this module."""

from aworld_gym.errors import MissingDependencyError


def check_installed() -> None:
    """Say at once that the extra is missing.

    Raises:
        MissingDependencyError: it is.
    """
    try:
        import httptools  # noqa: F401
        import jwt  # noqa: F401
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(f"an environment host needs: pip install 'aworld-gym[host]' ({error})") from error
