"""What goes wrong with Redis, in the words of `core.errors`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import redis

from core.errors import LogError, LogUnavailable

# What a server answers while it cannot do its work, and what helps.
_REFUSALS = {
    "OOM": "its memory limit is reached: raise maxmemory or free memory (never let it evict)",
    "READONLY": "it is a replica: name the primary in log.url",
    "MISCONF": "it cannot save to disk: free disk space, see its log",
    "LOADING": "it is still loading its data",
    "MASTERDOWN": "it is a replica that lost its primary",
    "CLUSTERDOWN": "its cluster is down",
    "TRYAGAIN": "its cluster is moving keys",
    "NOAUTH": "it asks for a password: put it into log.url",
    "WRONGPASS": "it refused the user name or password of log.url",
}


@contextmanager
def as_log_errors(where: str) -> Iterator[None]:
    """Raises LogUnavailable where the server cannot be reached or cannot work right now, and LogError for
    all else. `where` names the server, without credentials."""
    try:
        yield
    except redis.AuthenticationError as error:
        raise LogUnavailable(f"Redis at {where} does not let us in: {error}") from None
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise LogUnavailable(f"Redis at {where} cannot be reached: {error}") from None
    except redis.RedisError as error:
        text = str(error)
        for code, help_text in _REFUSALS.items():
            # redis-py drops the code of those errors that it has a class for
            if text.startswith(code) or type(error).__name__ in _CLASSES.get(code, ()):
                raise LogUnavailable(f"Redis at {where} refuses: {help_text} ({text})") from None
        raise LogError(f"Redis at {where}: {text}") from None


_CLASSES = {
    "OOM": ("OutOfMemoryError",),
    "READONLY": ("ReadOnlyError",),
    "LOADING": ("BusyLoadingError",),
    "MASTERDOWN": ("MasterDownError",),
    "CLUSTERDOWN": ("ClusterDownError",),
    "TRYAGAIN": ("TryAgainError",),
}
