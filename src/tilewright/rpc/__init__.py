"""Devices elsewhere: programs are compiled here, and run and timed there. See docs/devices.md."""

from tilewright.rpc.client import LocalSession, RemoteModule, RPCSession, TrackerSession, connect, connect_tracker
from tilewright.rpc.models import RemoteModel
from tilewright.rpc.proxy import Proxy
from tilewright.rpc.server import Server
from tilewright.rpc.tracker import Tracker

__all__ = ["LocalSession", "Proxy", "RPCSession", "RemoteModel", "RemoteModule", "Server", "Tracker", "TrackerSession", "connect", "connect_tracker"]
