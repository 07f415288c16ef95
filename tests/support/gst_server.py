"""GStreamer's RTSP server as a program, run by the system's Python, which has GStreamer's bindings; started by support.gst.

Reads one JSON object from standard input: `port` (0: any), `mounts` (path to launch line), `username`, `password` (or null). Prints
`ready PORT`, and ends when standard input does, so it never outlives the tests.
"""

import json
import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtsp", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtsp, GstRtspServer  # noqa: E402


def main() -> None:
    wanted = json.loads(sys.stdin.readline())
    Gst.init(None)
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service(str(wanted["port"]))
    permissions = None
    if wanted["username"] is not None:
        auth = GstRtspServer.RTSPAuth()
        auth.set_supported_methods(GstRtsp.RTSPAuthMethod.DIGEST)
        token = GstRtspServer.RTSPToken()
        token.set_string("media.factory.role", "viewer")
        auth.add_digest(wanted["username"], wanted["password"], token)
        server.set_auth(auth)
        permissions = GstRtspServer.RTSPPermissions()
        permissions.add_permission_for_role("viewer", "media.factory.access", True)
        permissions.add_permission_for_role("viewer", "media.factory.construct", True)
    mounts = server.get_mount_points()
    for path, launch in wanted["mounts"].items():
        factory = GstRtspServer.RTSPMediaFactory()
        factory.set_launch(launch)
        if permissions is not None:
            factory.set_permissions(permissions)
        mounts.add_factory(path, factory)
    loop = GLib.MainLoop()
    if server.attach(None) == 0:
        sys.exit("the port is taken")
    GLib.io_add_watch(sys.stdin, GLib.IO_HUP | GLib.IO_IN, lambda *_: loop.quit())
    print("ready", server.get_bound_port(), flush=True)
    loop.run()


main()
