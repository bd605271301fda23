"""Connect to a scheduler, and leave nothing behind where that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dbern.errors import EnvironmentRefusedError

if TYPE_CHECKING:
    from distributed import Client, Security

UNREACHABLE = (OSError, RuntimeError, TimeoutError, TypeError, ValueError)
"""What connecting raises: nobody there, plain TCP where encryption is required, no port."""


def connect(address: str, seconds: float, security: Security | None = None) -> Client:
    """A client of the scheduler at an address, of distributed's configured certificates or others.

    It unpickles nothing that it is sent: see `dbern.wire`.

    Raises
    ------
    EnvironmentRefusedError
        Where a file of `tls://` will not do, or either side refuses the other's certificate.
    OSError, RuntimeError, TimeoutError, TypeError, ValueError
        Those of `UNREACHABLE`.
    """
    from dbern.tls import check_files, refusal
    from dbern.wire import PlainClient, configured, is_tls

    secured = security or configured(address)
    if not is_tls(address):
        return PlainClient(address, timeout=seconds, security=secured)
    check_files(secured)
    try:
        return PlainClient(address, timeout=seconds, security=secured)
    except UNREACHABLE as error:
        if told := refusal(error, secured):
            raise EnvironmentRefusedError(told) from None
        raise


def apart(client: Client, seconds: float) -> Client:
    """A client of the same scheduler, with the same certificates, which unpickles nothing.

    Raises
    ------
    EnvironmentRefusedError, OSError, RuntimeError, TimeoutError, TypeError, ValueError
        As `connect`.
    """
    return connect(client.scheduler.address, seconds, client.security)


def is_here(client: Client) -> bool:
    """Whether scheduler and workers are this very process, and nothing crosses a wire."""
    return str(client.scheduler.address).startswith("inproc://")
