"""Profiles in TVM's terms: a `Report` has one row of metrics for each call, and prints as a table, csv or json.

    report.calls[0]     {"Name": "kernel_0_conv2d_add_relu", "Duration (us)": Duration(12.5), "Count": Count(1), …}
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tilewright.base.errors import InputError
from tilewright.base.json_reading import read_json


@dataclass(frozen=True, slots=True)
class Duration:
    """A time, in microseconds."""

    microseconds: float
    key: ClassVar[str] = "microseconds"

    def __str__(self) -> str:
        return f"{self.microseconds:,.2f}"


@dataclass(frozen=True, slots=True)
class Count:
    """A number of events."""

    value: int
    key: ClassVar[str] = "count"

    def __str__(self) -> str:
        return f"{self.value:,}"


@dataclass(frozen=True, slots=True)
class Percent:
    """A percentage."""

    percent: float
    key: ClassVar[str] = "percent"

    def __str__(self) -> str:
        return f"{self.percent:.2f}"


@dataclass(frozen=True, slots=True)
class Ratio:
    """A quotient, such as operations per second; aggregated rows have the mean."""

    ratio: float
    key: ClassVar[str] = "ratio"

    def __str__(self) -> str:
        return f"{self.ratio:,.2f}"


Metric = Duration | Count | Percent | Ratio | str
_KINDS: Final[dict[str, Callable[[Any], Any]]] = {
    Duration.key: lambda v: Duration(float(v)), Count.key: lambda v: Count(int(v)),
    Percent.key: lambda v: Percent(float(v)), Ratio.key: lambda v: Ratio(float(v)), "string": str,
}
_NAME, _TIME, _SHARE = "Name", "Duration (us)", "Percent"
_SUM: Final = "Sum"
_RULE: Final = "----------"


def number_of(metric: Metric) -> float:
    """Return the number of a metric; raises `InputError` for a text."""
    match metric:
        case Duration():
            return metric.microseconds
        case Count():
            return metric.value
        case Percent():
            return metric.percent
        case Ratio():
            return metric.ratio
    raise InputError(f"'{metric}' is a text, and has no number", code="TW0717")


@dataclass(frozen=True)
class Report:
    """Rows of metrics by name, one for each call. `device_metrics` are those of whole devices, `configuration`
    describes the measurement."""

    calls: Sequence[Mapping[str, Metric]]
    device_metrics: Mapping[str, Mapping[str, Metric]]
    configuration: Mapping[str, Metric]

    def __init__(
        self, calls: Sequence[Mapping[str, Metric]], device_metrics: Mapping[str, Mapping[str, Metric]] | None = None,
        configuration: Mapping[str, Metric] | None = None,
    ) -> None:
        object.__setattr__(self, "calls", tuple(dict(c) for c in calls))
        object.__setattr__(self, "device_metrics", dict(device_metrics or {}))
        object.__setattr__(self, "configuration", dict(configuration or {}))

    @property
    def columns(self) -> list[str]:
        """The names of all metrics, in order of first occurrence."""
        return [*dict.fromkeys(name for call in self.calls for name in call)]

    def table(self, sort: bool = True, aggregate: bool = True, col_sums: bool = True) -> str:
        """Return the rows as text: longest first with `sort`, rows of equal name and shapes combined with `aggregate`,
        with column sums for `col_sums`."""
        rows = _aggregated(self.calls) if aggregate else [*self.calls]
        if sort:
            rows.sort(key=lambda row: -number_of(row.get(_TIME, Duration(0.0))))
        columns = self.columns
        lines = [[str(row.get(c, "")) for c in columns] for row in rows]
        if col_sums and rows:
            sums = [_column_sum(name, [row[name] for row in rows if name in row]) for name in columns]
            lines += [
                [_RULE] + [""] * (len(columns) - 1),
                [_SUM if name == _NAME else total for name, total in zip(columns, sums, strict=True)]
            ]
        for device, metrics in self.device_metrics.items():
            total = {
                _NAME: "Total", "Device": device, **{k: v for k, v in metrics.items() if k in columns or k == "Device"}
            }
            lines.append([str(total.get(c, "")) for c in columns])
        numeric = [any(isinstance(row.get(c), (Duration, Count, Percent, Ratio)) for row in rows) for c in columns]
        widths = [max(map(len, (c, *(line[k] for line in lines)))) for k, c in enumerate(columns)]
        shown = [
            [text.rjust(w) if right else text.ljust(w) for text, w, right in zip(line, widths, numeric, strict=True)]
            for line in (columns, *lines)]
        head = ["  ".join(line).rstrip() for line in shown]
        said = [f"{name}: {value}" for name, value in self.configuration.items()]
        return "\n".join([*head, *([""] if said else []), *said]) + "\n"

    def csv(self) -> str:
        """Return the rows as comma-separated values with plain numbers, after a header row."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        columns = self.columns
        writer.writerow(columns)
        for row in self.calls:
            writer.writerow(
                [
                    "" if c not in row else row[c] if isinstance(row[c], str) else _plain(number_of(row[c]))
                    for c in columns])
        return out.getvalue()

    def json(self) -> str:
        """Return the report as JSON, each metric with its kind: `{"Duration (us)": {"microseconds": 12.5}}`."""
        return json.dumps({
            "calls": [_to_json(row) for row in self.calls],
            "device_metrics": {device: _to_json(row) for device, row in self.device_metrics.items()},
            "configuration": _to_json(self.configuration),
        })

    @staticmethod
    def from_json(text: str) -> Report:
        """Read a report from the text that `json` returned. Raises `InputError` for any other text."""
        try:
            content = read_json(text)
            rows = [_from_json(row) for row in content["calls"]]
            return Report(
                rows, {d: _from_json(row) for d, row in content["device_metrics"].items()},
                _from_json(content.get("configuration", {})))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"this is no report: {error!r}; give what Report.json() returned", code="TW0716") from None

    def __str__(self) -> str:
        return self.table()


def _aggregated(calls: Sequence[Mapping[str, Metric]]) -> list[Mapping[str, Metric]]:
    groups: dict[tuple[Metric | None, ...], list[Mapping[str, Metric]]] = {}
    for call in calls:
        groups.setdefault((call.get(_NAME), call.get("Device"), call.get("Argument Shapes")), []).append(call)
    return [
        rows[0] if len(rows) == 1
        else {
            name: _together(name, [row[name] for row in rows if name in row])
            for name in dict.fromkeys(n for r in rows for n in r)
        } for rows in groups.values()]


def _together(name: str, values: Sequence[Metric]) -> Metric:
    """Aggregate several values of a metric: sums, but means of ratios and of percentages that do not refer to the
    whole."""
    first = values[0]
    if isinstance(first, str):
        return ", ".join(dict.fromkeys(map(str, values)))
    total = sum(map(number_of, values))
    match first:
        case Count():
            return Count(int(total))
        case Ratio():
            return Ratio(total / len(values))
        case Percent() if name != _SHARE:
            return Percent(total / len(values))
    return type(first)(total)


def _column_sum(name: str, values: Sequence[Metric]) -> str:
    """Format the sum of a column; empty for strings and ratios."""
    if not values or any(isinstance(v, (str, Ratio)) or (isinstance(v, Percent) and name != _SHARE) for v in values):
        return ""
    return str(_together(name, values))


def _plain(x: float) -> str:
    return repr(int(x)) if float(x).is_integer() else repr(round(x, 6))


def _to_json(row: Mapping[str, Metric]) -> dict[str, Any]:
    return {name: {"string": v} if isinstance(v, str) else {v.key: number_of(v)} for name, v in row.items()}


def _from_json(row: Mapping[str, Mapping[str, Any]]) -> dict[str, Metric]:
    found: dict[str, Metric] = {}
    for name, fields in row.items():
        ((kind, value),) = fields.items()
        found[name] = _KINDS[kind](value)
    return found


class MetricCollector:
    """Measures metrics of calls: `start` runs before each call, `stop` after it with the result of `start`, and returns
    the metrics by name.

    This package has no collector of hardware counters, which need privileges that containers lack; subclasses can add
    one.
    """

    def init(self, devices: Sequence[DeviceWrapper]) -> None:
        """Prepare for measurements on these devices; called once."""

    def start(self, device: DeviceWrapper) -> Any:
        """Begin a measurement before a call; the result is passed to `stop`."""

    def stop(self, started: Any) -> Mapping[str, Metric]:
        """Return the metrics of the call."""
        return {}


@dataclass(frozen=True, slots=True)
class DeviceWrapper:
    """A device, as passed to collectors."""

    device: Any


def profile_function(
    mod: Any, dev: Any, collectors: Sequence[MetricCollector] | None = None, func_name: str | None = None,
    warmup_iters: int = 10
) -> Callable[..., dict[str, Metric]]:
    """Return a function that calls function `func_name` of `mod` (default: its only one) with its arguments,
    `warmup_iters` times unmeasured, then once measured.

    It returns the metrics of the collectors, or by default the time: `{"Duration (us)": Duration}`. Raises `InputError`
    for a negative `warmup_iters`.
    """
    if warmup_iters < 0:
        raise InputError(f"warmup_iters={warmup_iters} is less than none", code="TW0717")
    measured = [*(collectors or ())]
    wrapped = DeviceWrapper(dev)
    for collector in measured:
        collector.init([wrapped])
    function = mod if func_name is None and callable(mod) else mod[func_name or mod.entry_name]

    def call(*args: Any) -> dict[str, Metric]:
        for _ in range(warmup_iters):
            function(*args)
        begin = time.perf_counter()
        found = measured_call(lambda: function(*args), wrapped, measured)
        return found if measured else {_TIME: Duration(1e6 * (time.perf_counter() - begin))}

    return call


def measured_call(
    call: Callable[[], object], device: DeviceWrapper, collectors: Sequence[MetricCollector]
) -> dict[str, Metric]:
    """Return the metrics of collectors for a call: they start in order, and stop in reverse order."""
    started = [collector.start(device) for collector in collectors]
    call()
    found: dict[str, Metric] = {}
    for collector, state in zip(reversed(collectors), reversed(started), strict=True):
        found.update(collector.stop(state))
    return found
