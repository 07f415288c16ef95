"""One path of the server, a camera: what it serves, how it behaves now, what it has seen."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from support.rtsp.track import Track


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How a path serves its clip, and what is wrong with it. Sessions look at it again before each frame."""

    username: str | None = None
    """Set: DESCRIBE, SETUP and PLAY need this user and `password`."""
    password: str = ""
    auth: str = "digest"
    """`digest` (MD5, qop=auth), `digest-rfc2069` (MD5 without qop, as old cameras do) or `basic`."""
    loop: bool = True
    """Begin again at the end, with RTP times going on; else say so with an RTCP BYE."""
    speed: float = 1.0
    """1 is the clip's own pace; 0 sends as fast as the client reads."""
    sender_reports: bool = False
    """RTCP sender reports: one at the start, then every 2 s."""

    silent: bool = False
    """Requests are read and never answered."""
    no_rtp: bool = False
    """PLAY is answered with 200, and nothing follows."""
    stall_after: int | None = None
    """This many frames of a session are sent, then nothing more; the connection stays."""
    drop_after: int | None = None
    """This many frames of a session are sent, then the connection is closed."""
    garbage: bool = False
    """RTP payloads are random bytes."""
    not_found: bool = False
    """404, as every unknown path."""
    unauthorized: bool = False
    """401 whatever the client sends."""
    forbidden: bool = False
    """403."""
    no_parameter_sets_in_band: bool = False
    """Parameter sets are in the SDP only."""
    no_parameter_sets_in_sdp: bool = False
    """Parameter sets are in the stream only."""
    lose: float = 0.0
    """Fraction of RTP packets that are not sent."""
    seed: int = 0
    """Of the randomness of `lose` and `garbage`; each session begins with it anew."""
    starts_mid_gop: bool = False
    """The first frame of a session is the third of a GOP."""


@dataclass(slots=True)
class ServedPath:
    """What a test reads. Written by the server's thread, counted since `RtspServer.add`."""

    track: Track
    behaviour: Behaviour
    requests: Counter[str] = field(default_factory=Counter)
    """By method, refused ones included."""
    connections: int = 0
    """TCP connections that have named this path."""
    sessions: int = 0
    """Playing now."""
    refused: int = 0
    """Requests with credentials that were wrong."""
    challenged: int = 0
    """Requests without credentials that needed them."""
    frames_sent: int = 0
    packets_sent: int = 0
    packets_lost: int = 0
    """Left out because of `lose`."""
    transports: Counter[str] = field(default_factory=Counter)
    """SETUPs by transport: `tcp` or `udp`."""

    @property
    def plays(self) -> int:
        return self.requests["PLAY"]

    @property
    def teardowns(self) -> int:
        return self.requests["TEARDOWN"]
