"""The shared secret of a network of devices, and the mutual authentication of its members.

A connection begins with a challenge in both directions. Each side answers the other's random number with an HMAC (RFC
2104, SHA-256) over both numbers and the request. The secret itself is never sent, and an answer is valid for one
connection only. Later traffic is neither encrypted nor signed: use trusted networks or tunnels.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
from pathlib import Path
from typing import Any, Final

from tilewright.base.errors import RPCError

VARIABLE: Final = "TILEWRIGHT_RPC_SECRET"
_LEAST: Final = 16


def shared_secret(given: str | None = None) -> bytes:
    """Return `given`, or the environment's `TILEWRIGHT_RPC_SECRET`, or the secret in the user's file, created at first
    use.

    Raises `RPCError` for a secret that is too short, and for a file that others can read.
    """
    text = given or os.environ.get(VARIABLE) or _of_user()
    if len(text) < _LEAST:
        raise RPCError(
            f"the secret has {len(text)} characters, but needs at least {_LEAST}; `python -c 'import secrets; "
            "print(secrets.token_hex(32))'` makes one",
            code="TW1202")
    return text.encode()


def secret_file() -> Path:
    """Return the path of the user's secret. Copy the file to the other machines, or set `TILEWRIGHT_RPC_SECRET` there.
    """
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "tilewright" / "rpc_secret"


def _of_user() -> str:
    path = secret_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        if not path.exists():
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_hex(32))
            try:
                os.link(temporary, path)  # if another process was first, its secret counts
            except FileExistsError:
                pass
            finally:
                temporary.unlink()
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise RPCError(f"{path}: others can read the secret; `chmod 600 {path}`, or make a new one", code="TW1202")
        return path.read_text().strip()
    except OSError as error:
        raise RPCError(
            f"{path}: the secret cannot be read or made ({error.strerror}); set {VARIABLE}", code="TW1202"
        ) from error


def nonce() -> str:
    """Return a number that was never used."""
    return secrets.token_hex(16)


def proof(secret: bytes, side: str, theirs: str, ours: str, wanted: dict[str, Any]) -> str:
    """Return the proof that `side` knows the secret."""
    text = json.dumps([side, theirs, ours, wanted], sort_keys=True).encode()
    return hmac.new(secret, text, hashlib.sha256).hexdigest()


def proves(given: Any, expected: str) -> bool:
    """Whether the proofs are equal, compared in constant time."""
    return isinstance(given, str) and hmac.compare_digest(given.encode(), expected.encode())
