"""A Report as text for people: one line a fact."""

from __future__ import annotations

from streamd.probe.report import Color, Gop, Report

_CODECS = {
    "h264": "H.264",
    "hevc": "HEVC (H.265)",
    "mpeg4": "MPEG-4 Part 2",
    "mpeg2video": "MPEG-2",
    "mjpeg": "Motion JPEG",
    "vp8": "VP8",
    "vp9": "VP9",
    "av1": "AV1",
}
_MATRICES = {
    "bt601": "BT.601",
    "bt709": "BT.709",
    "bt2020": "BT.2020",
    "fcc": "FCC",
    "smpte240m": "SMPTE 240M",
    "identity": "RGB",
}


def lines(report: Report) -> list[str]:
    """The report, facts in a column, then its notes."""
    times = report.times
    facts = {
        "codec": " ".join(filter(None, [_CODECS.get(report.codec, report.codec), report.profile])),
        "size": f"{report.width}x{report.height}" + (f", to be turned by {report.rotation_deg} degrees" if report.rotation_deg else ""),
        "pixels": f"{report.pixel_format}, {report.bit_depth} bit",
        "colours": color(report.color),
        "frame rate": _frame_rate(report),
        "key frames": gop(report.gop),
        "B-frames": "yes" if report.b_frames else "no",
        "bit rate": "unknown" if report.bit_rate is None else _bit_rate(report.bit_rate),
        "opened": f"after {times.open:.2f} s; first packet {times.first_packet:.2f} s, first frame {times.first_frame:.2f} s",
        "decoder": report.decoder.name.upper() + (f" ({report.decoder.reason})" if report.decoder.reason else ""),
        "seen": f"{report.packets} packets" + ("" if report.seconds is None else f", {report.seconds:.1f} s of video"),
    }
    return [report.address, *(f"  {name:<11} {fact}" for name, fact in facts.items()), *(f"  note        {note}" for note in report.notes)]


def color(tags: Color) -> str:
    """`BT.709, limited range`, and what of it is tagged."""
    matrix = _MATRICES.get(tags.matrix, tags.matrix)
    text = f"{matrix}, {'full' if tags.full_range else 'limited'} range"
    if tags.matrix_tagged and tags.range_tagged:
        return f"{text}, as tagged"
    untagged = " and ".join(name for name, tagged in (("matrix", tags.matrix_tagged), ("range", tags.range_tagged)) if not tagged)
    rule = ": untagged video is BT.601 below 720 lines, else BT.709" if not tags.matrix_tagged and tags.matrix != "identity" else ""
    return f"{text} ({untagged} not tagged{rule})"


def gop(found: Gop) -> str:
    """`every 50 frames (2.00 s)`."""
    if found.frames is None:
        return f"only one in {found.at_least} frames"
    if found.frames == 1:
        return "every frame"
    every = f"every {found.frames} frames" if found.shortest == found.frames else f"every {found.shortest} to {found.frames} frames"
    return every if found.seconds is None else f"{every} ({found.seconds:.2f} s)"


def _frame_rate(report: Report) -> str:
    declared, measured = report.frame_rate_declared, report.frame_rate_measured
    if measured is None:
        return "unknown" if declared is None else f"{declared:g} declared; not measurable"
    return f"{measured:g} measured, {'none' if declared is None else f'{declared:g}'} declared"


def _bit_rate(bits_per_s: float) -> str:
    return f"{bits_per_s / 1e6:.1f} Mbit/s" if bits_per_s >= 1e6 else f"{bits_per_s / 1e3:.0f} kbit/s"
