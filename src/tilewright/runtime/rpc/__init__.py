"""Remote devices: programs are compiled on this machine, and run and timed on the device. See docs/devices.md."""

from tilewright.runtime.rpc.client import (
    LocalSession,
    RemoteModule,
    RPCSession,
    TrackerSession,
    connect,
    connect_tracker,
)
from tilewright.runtime.rpc.functions import RemoteFunction
from tilewright.runtime.rpc.models import RemoteModel
from tilewright.runtime.rpc.proxy import Proxy
from tilewright.runtime.rpc.server import Server
from tilewright.runtime.rpc.tracker import Tracker

__all__ = [
    "LocalSession", "Proxy", "RPCSession", "RemoteFunction", "RemoteModel", "RemoteModule", "Server", "Tracker",
    "TrackerSession", "connect", "connect_tracker",
]
