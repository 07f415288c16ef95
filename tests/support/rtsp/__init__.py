"""A real RTSP 1.0 server of the tests' own, with the faults of real cameras: see server.py for its use."""

from support.rtsp.path import Behaviour, ServedPath
from support.rtsp.server import RtspServer

__all__ = ["Behaviour", "RtspServer", "ServedPath"]
