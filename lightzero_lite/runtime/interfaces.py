"""The network interface over which gloo's ranks exchange, where the user names none.

gloo takes the interface of this host's name. A name that resolves to the loopback address, as many
installations have it, or to nothing, as without a network, would leave the ranks apart.
"""

from __future__ import annotations

import os
import socket
import struct
import sys

from lightzero_lite.types import UserError

_VARIABLE = "GLOO_SOCKET_IFNAME"
_GET_ADDRESS = 0x8915  # SIOCGIFADDR of Linux


def choose_interface(main_address: str, *, is_one_host: bool) -> None:
    """Set GLOO_SOCKET_IFNAME: the loopback interface on one host, else the one towards rank 0.

    Args:
        main_address: Name or address of rank 0's host.
        is_one_host: True: all ranks are on this host, and need no network.
    """
    addresses = {name: _address_of(name) for _, name in socket.if_nameindex()}
    if is_one_host:
        names = [name for name in addresses if name == "lo"]
    else:
        own = _address_towards(main_address)
        is_known = own is not None and not own.startswith("127.")
        names = [name for name, address in addresses.items() if is_known and address == own]
    if names:
        os.environ.setdefault(_VARIABLE, names[0])


def known_host(name: str, *, is_one_host: bool) -> str:
    """Return the name of rank 0's host, or on one host an address that works without a name.

    Raises:
        UserError: There are several hosts, and this one cannot resolve the name.
    """
    try:
        socket.getaddrinfo(name, None)
    except OSError as error:
        if is_one_host:
            return "127.0.0.1"
        raise UserError(
            f"MASTER_ADDR={name}: this host cannot resolve the name ({error.strerror}): start "
            "torchrun on every host with --local-addr=ADDRESS and an address in --rdzv_endpoint"
        ) from None
    return name


def _address_towards(host: str) -> str | None:
    """Return the IPv4 address of this host from which it would send to another."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))  # sends nothing
        except OSError:
            return None
        address: str = probe.getsockname()[0]
        return address


def _address_of(interface: str) -> str | None:
    """Return the IPv4 address of an interface; None where it has none or this is not Linux."""
    if sys.platform != "linux":
        return None
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("256s", interface[:15].encode())
        try:
            answer = fcntl.ioctl(probe.fileno(), _GET_ADDRESS, request)
        except OSError:
            return None
    return socket.inet_ntoa(answer[20:24])
