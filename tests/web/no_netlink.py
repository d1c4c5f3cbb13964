"""Denies netlink sockets to a process, so that it does not notice network changes.

Chromium ends all requests with ERR_NETWORK_CHANGED when an address appears, as it does when a test
beside it makes network namespaces; it has no option against that. Without a netlink socket it takes
the network for unchanged. https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

import ctypes
import platform
import socket
import struct
from errno import EAFNOSUPPORT

SOCKET_CALLS = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}  # AUDIT_ARCH, number
SECCOMP_DATA = {"nr": 0, "arch": 4, "args": 16}  # offsets
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06  # BPF_LD | BPF_W | BPF_ABS; BPF_JMP | BPF_JEQ; BPF_RET
ALLOW, REFUSE = 0x7FFF_0000, 0x0005_0000  # SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def refuse_netlink() -> None:
    """Deny netlink sockets to this process and its children permanently; only on Linux."""
    if platform.system() != "Linux" or platform.machine() not in SOCKET_CALLS:
        return
    arch, number = SOCKET_CALLS[platform.machine()]
    steps = [
        (LOAD, 0, 0, SECCOMP_DATA["arch"]),
        (EQUAL, 0, 5, arch),
        (LOAD, 0, 0, SECCOMP_DATA["nr"]),
        (EQUAL, 0, 3, number),
        (LOAD, 0, 0, SECCOMP_DATA["args"]),
        (EQUAL, 0, 1, socket.AF_NETLINK),
        (RETURN, 0, 0, REFUSE | EAFNOSUPPORT),
        (RETURN, 0, 0, ALLOW),
    ]
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 and (
        libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(_Program(len(steps), code)))
        == 0
    )
    if not done:
        raise OSError(ctypes.get_errno(), "cannot refuse netlink sockets")
