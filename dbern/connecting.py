"""Connect to a scheduler, and leave nothing behind where that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client

UNREACHABLE = (OSError, RuntimeError, TimeoutError, TypeError, ValueError)
"""What connecting raises: nobody there, another authority, plain TCP, no certificate, no port."""


def connect(address: str, seconds: float, **options: Any) -> Client:
    """A client of the scheduler at an address; `options` are those of a client.

    Raises
    ------
    OSError, RuntimeError, TimeoutError, TypeError, ValueError
        Those of `UNREACHABLE`.
    """
    from distributed import Client

    class Whole(Client):  # type: ignore[misc]  # has no types
        """distributed closes a client after some failures only; half made it waits at its end."""

        async def _start(self, **arguments: Any) -> None:
            try:
                await super()._start(**arguments)
            except Exception:
                await self._close()
                raise

    return Whole(address, timeout=seconds, **options)
