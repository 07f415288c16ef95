"""RTSP cameras and HTTP streams: the options that FFmpeg understands for each protocol, and addresses with percent-encoded credentials.

FFmpeg ignores options that it does not know, without a word, so each one here has a test that sees it work. The deadline options make
FFmpeg's own reads return; PyAV's `timeout` is not used because its interrupt callback takes the GIL at each poll.
"""

from __future__ import annotations

from urllib.parse import quote, urlsplit, urlunsplit

from streamd.config.types import CameraConfig
from streamd.sources.demux import Address, Demuxer

RTSP_PROTOCOLS = "rtsp,rtsps,rtp,udp,tcp,tls"
HTTP_PROTOCOLS = "http,https,tcp,tls,crypto"
HTTP_FORMATS = "mov,matroska,webm,mpegts,flv,mpeg,h264,hevc,hls,mpjpeg,mjpeg,avi"


def with_credentials(url: str, *, username: str | None, password: str | None) -> str:
    """`url` with its user and password percent-encoded (RFC 3986, 3.2.1), whatever characters they hold."""
    if username is None and password is None:
        return url
    parts = urlsplit(url)
    user = quote(username or "", safe="")
    secret = "" if password is None else ":" + quote(password, safe="")
    return urlunsplit(parts._replace(netloc=f"{user}{secret}@{parts.netloc}"))


def of_camera(camera: CameraConfig) -> Demuxer:
    """A Source over RTSP(S), of which only the video is set up, or over HTTP(S): MPEG-TS, FLV, Matroska, HLS, multipart JPEG, …"""
    timeout_s = max(camera.connect_timeout, camera.silence_timeout)
    timeout_us = str(int(timeout_s * 1e6))
    options = {"user_agent": "streamd", "analyzeduration": "2000000"}
    if camera.scheme in {"http", "https"}:
        options |= {"rw_timeout": timeout_us, "protocol_whitelist": HTTP_PROTOCOLS, "format_whitelist": HTTP_FORMATS}
    else:
        options |= {"timeout": timeout_us, "protocol_whitelist": RTSP_PROTOCOLS, "format_whitelist": "rtsp"}
        options |= {"rtsp_transport": camera.transport, "allowed_media_types": "video"}
    password = None if camera.password is None else camera.password.get_secret_value()
    return Demuxer(
        Address(
            url=with_credentials(camera.url, username=camera.username, password=password),
            shown=camera.url,
            options=options,
            live=True,
            open_timeout_s=timeout_s,
            read_timeout_s=timeout_s,
        )
    )
