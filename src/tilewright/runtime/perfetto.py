"""Writes traces in Perfetto's protobuf format (protos/perfetto/trace: trace.proto, track_event/*.proto).

    Trace.packet (1): TracePacket {
        timestamp (8), trusted_packet_sequence_id (10), track_event (11) | track_descriptor (60)
    }
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tilewright.runtime.trace import Slice, Trace

_PACKET: Final = 1
_TIMESTAMP, _SEQUENCE, _EVENT, _FLAGS, _DESCRIPTOR = 8, 10, 11, 13, 60
_UUID, _NAME, _PROCESS, _THREAD, _PARENT, _COUNTER = 1, 2, 3, 4, 5, 8
_EVENT_ANNOTATION, _EVENT_TYPE, _EVENT_TRACK, _EVENT_CATEGORY, _EVENT_NAME, _EVENT_VALUE = 4, 9, 11, 22, 23, 30
_BEGIN, _END, _COUNTED = 1, 2, 4
_ANNOTATION_INT, _ANNOTATION_TEXT, _ANNOTATION_NAME = 4, 6, 10
_UNIT, _SIZE_BYTES = 3, 3
_CLEARED: Final = 1
"""Flag of the first packet of a sequence."""
_PID, _OF_PROCESS, _OF_ARENA, _FIRST_LANE = 1, 1, 2, 3


def perfetto_bytes(trace: Trace) -> bytes:
    """Return the whole trace: a process with a track for each lane, and a counter for the arena."""
    from tilewright.runtime.trace import ARENA

    out = bytearray()
    process = _number(1, _PID) + _text(6, f"tilewright: {trace.program}")
    out += _packet(
        _number(_FLAGS, _CLEARED) + _message(_DESCRIPTOR, _number(_UUID, _OF_PROCESS) + _message(_PROCESS, process)))
    for k, lane in enumerate(trace.lanes):
        thread = _number(1, _PID) + _number(2, _PID + k) + _text(5, lane)
        out += _packet(
            _message(
                _DESCRIPTOR, _number(_UUID, _FIRST_LANE + k) + _number(_PARENT, _OF_PROCESS) + _message(_THREAD, thread)
            ))
    counter = (
        _number(_UUID, _OF_ARENA) + _text(_NAME, ARENA) + _number(_PARENT, _OF_PROCESS)
        + _message(_COUNTER, _number(_UNIT, _SIZE_BYTES))
    )
    out += _packet(_message(_DESCRIPTOR, counter))
    for k, slices in enumerate(trace.lanes.values()):
        for s in slices:
            for packet in _slice(s, _FIRST_LANE + k):
                out += packet
    for time, count in trace.arena:
        event = _number(_EVENT_TYPE, _COUNTED) + _number(_EVENT_TRACK, _OF_ARENA) + _number(_EVENT_VALUE, count)
        out += _packet(_number(_TIMESTAMP, time) + _message(_EVENT, event))
    return bytes(out)


def _slice(s: Slice, track: int) -> Iterator[bytes]:
    """Yield the packets of a slice: its begin, the slices inside, and its end."""
    head = (
        _number(_EVENT_TYPE, _BEGIN) + _number(_EVENT_TRACK, track) + _text(_EVENT_CATEGORY, "tilewright")
        + _text(_EVENT_NAME, s.name)
    )
    for name, value in s.details.items():
        said = _number(_ANNOTATION_INT, value) if isinstance(value, int) else _text(_ANNOTATION_TEXT, value)
        head += _message(_EVENT_ANNOTATION, _text(_ANNOTATION_NAME, name) + said)
    yield _packet(_number(_TIMESTAMP, s.begin) + _message(_EVENT, head))
    for inner in s.inside:
        yield from _slice(inner, track)
    yield _packet(
        _number(_TIMESTAMP, s.end) + _message(_EVENT, _number(_EVENT_TYPE, _END) + _number(_EVENT_TRACK, track)))


def _packet(fields: bytes) -> bytes:
    return _message(_PACKET, fields + _number(_SEQUENCE, 1))


def _number(tag: int, value: int) -> bytes:
    """Return a varint field; negative numbers take ten bytes."""
    return _varint(tag << 3) + _varint(value & ((1 << 64) - 1))


def _text(tag: int, value: str) -> bytes:
    return _message(tag, value.encode())


def _message(tag: int, content: bytes) -> bytes:
    """Return a length-delimited field: bytes, text, or a message."""
    return _varint(tag << 3 | 2) + _varint(len(content)) + content


def _varint(n: int) -> bytes:
    made = bytearray()
    while n > 0x7F:
        made.append(n & 0x7F | 0x80)
        n >>= 7
    made.append(n)
    return bytes(made)
