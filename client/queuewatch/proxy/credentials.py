"""The proxy's own AWS credentials, from the default chain, refreshed outside the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Final

from queuewatch.proxy.signing import Credentials

_log = logging.getLogger("queuewatch.proxy")

_REFRESH_EVERY_S: Final = 15.0
_RETRY_AFTER_S: Final = 1.0


class CredentialSource:
    """Keeps a current set of credentials of a botocore session.

    The chain may call a metadata or token service and block, so it is queried in a thread every few seconds. botocore renews
    temporary credentials ten to fifteen minutes before they expire.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._current: Credentials | None = None
        self._asking: asyncio.Future[Credentials | None] | None = None
        self._asked_s = float("-inf")
        self.errors = 0

    async def get(self) -> Credentials | None:
        """Return the credentials, or None while the chain has none; it is queried again at most once a second."""
        if self._current is not None:
            return self._current
        loop = asyncio.get_running_loop()
        if self._asking is None and loop.time() - self._asked_s >= _RETRY_AFTER_S:
            self._asking = asyncio.ensure_future(self._ask())
        if self._asking is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._asking), 5)
        return self._current

    async def keep_fresh(self) -> None:
        """Query the chain forever; run this as a task."""
        while True:
            if self._asking is None:
                await self._ask()
            await asyncio.sleep(_REFRESH_EVERY_S)

    async def _ask(self) -> Credentials | None:
        try:
            found = await asyncio.to_thread(self._freeze)
        except Exception as error:
            found = None
            self._failed(f"{type(error).__name__}: {error}")
        else:
            if found is None:
                self._failed("the default chain has none")
        finally:
            self._asking = None
            self._asked_s = asyncio.get_running_loop().time()
        if found is not None:
            if self._current is None and self.errors:
                _log.warning("AWS credentials were found")
            self._current = found
        return self._current

    def _freeze(self) -> Credentials | None:
        credentials = self._session.get_credentials()
        return None if credentials is None else credentials.get_frozen_credentials()

    def _failed(self, reason: str) -> None:
        self.errors += 1
        if self._current is None and self.errors == 1:
            _log.error("no AWS credentials: %s; calls are answered 503 until there are some", reason)
