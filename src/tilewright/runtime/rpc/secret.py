"""The secret that all parties of one network of devices share, and how they show each other that they know it.

A connection begins with a challenge both ways: each side answers the other's random number with an HMAC (RFC 2104,
SHA-256) over both numbers and what is asked for. The secret itself never travels, and an answer is good for one
connection only. What is sent afterwards is neither encrypted nor signed: use networks that you trust, or tunnels.
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
    """`given`, or the environment's `TILEWRIGHT_RPC_SECRET`, or the one in the user's own file, which is made when it
    is first needed.

    Raises `RPCError` for one that is too short, and for a file that others can read.
    """
    text = given or os.environ.get(VARIABLE) or _of_user()
    if len(text) < _LEAST:
        raise RPCError(
            f"the secret has {len(text)} characters and needs {_LEAST}; `python -c 'import secrets; "
            "print(secrets.token_hex(32))'` makes one",
            code="TW1202")
    return text.encode()


def secret_file() -> Path:
    """Where the user's own secret is: copy it to the other machines of your network, or set `TILEWRIGHT_RPC_SECRET`
    there."""
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
                os.link(temporary, path)  # another process may have been first, and then its secret counts
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
    """A number that was never used."""
    return secrets.token_hex(16)


def proof(secret: bytes, side: str, theirs: str, ours: str, wanted: dict[str, Any]) -> str:
    """Return the proof that `side` knows the secret."""
    text = json.dumps([side, theirs, ours, wanted], sort_keys=True).encode()
    return hmac.new(secret, text, hashlib.sha256).hexdigest()


def proves(given: Any, expected: str) -> bool:
    """Whether they are equal, in a time that does not tell where they differ."""
    return isinstance(given, str) and hmac.compare_digest(given.encode(), expected.encode())
