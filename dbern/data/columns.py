"""Arrow columns to 64-bit floats: one rule for each type, single IEEE operations only.

A value that 64-bit floats cannot hold is the nearest one that they can; null is NaN. Nothing here
depends on values but the values.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from dbern.data.domain import Column
from dbern.data.resolution import MAX_STEPS, decimal_of
from dbern.data.times import TICKS, TimeUnit, hours_of_ticks, moment_of
from dbern.errors import SpecError
from dbern.system import imported, number_of
from dbern.types import BoolArray, FloatArray

_LIMB_BITS = 64
_LONG_TEXT_BYTES = 256
_MAX_DECIMAL_SCALE = 200  # of a decimal: beyond, powers of ten and values may be no floats
_MAX_EXACT = 1 << 53  # integers up to it are floats, each another one
_MAX_NANOSECONDS = 2**63 - 1
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def is_time(kind: pa.DataType) -> bool:
    """Return whether values are dates or timestamps."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def is_number(kind: pa.DataType) -> bool:
    """Return whether values are numbers, booleans (0 and 1) included."""
    types = pa.types
    return bool(
        types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or (types.is_decimal(kind) and abs(kind.scale) <= _MAX_DECIMAL_SCALE)
    )


def is_clock(kind: pa.DataType) -> bool:
    """Return whether values are times of day, which are hours from 0 to 24."""
    return bool(pa.types.is_time(kind))


def is_measured(kind: pa.DataType, unit: TimeUnit | None) -> bool:
    """Return whether an axis in a unit may have such values for numbers: no hours for days."""
    return is_number(kind) or (unit is None and is_clock(kind))


def is_text(kind: pa.DataType) -> bool:
    """Return whether values are text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_empty(kind: pa.DataType) -> bool:
    """Return whether no value is there: the type that writers infer where all are missing."""
    return bool(pa.types.is_null(plain_type(kind)))


def may_be_text(column: Column) -> bool:
    """Return whether the spec lets the column hold text."""
    return column.ids or any(isinstance(value, str) for value in column.categories)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values: that of a dictionary's."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def type_text(kind: pa.DataType) -> str:
    """Write a type, but for a dictionary's indices: how wide they are tells how many values are."""
    text = " ".join(str(plain_type(kind)).split())
    return f"dictionary of {text}" if pa.types.is_dictionary(kind) else text


def resolution_of(
    kind: pa.DataType, low: float, high: float, unit: TimeUnit | None
) -> float | None:
    """Return what an axis counts in by its column's type, in data units; None where that is open.

    Integers and booleans count in 1, dates in days, decimals in their last digit. It is open too
    where a bound is no such value, or the values are more than an axis may count in.
    """
    plain = plain_type(kind)
    if pa.types.is_date(plain) and unit is not None:
        step = TICKS["D"] / unit.seconds
    elif pa.types.is_integer(plain) or pa.types.is_boolean(plain):
        step = Fraction(1)
    elif pa.types.is_decimal(plain) and is_number(plain):
        step = Fraction(10) ** -plain.scale
    else:
        return None
    if not (math.isfinite(low) and math.isfinite(high)):  # refused with the axis
        return None
    first, last = decimal_of(low) / step, decimal_of(high) / step
    counted = first.denominator == last.denominator == 1 and last - first <= MAX_STEPS
    return float(step) if counted else None


def _compute(name: str, values: pa.Array, **options: Any) -> pa.Array:
    """Call one of Arrow's functions: a plan needs none, and to import them takes a while."""
    return imported(f"pyarrow.compute:{name}")(values, **options)


def plain_layout(values: pa.Array) -> pa.Array:
    """Return a value for each row, of a dictionary, runs, an extension or views; null stays null.

    numpy would take a row without an index in a dictionary for the last of its values.
    """
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain_layout(values.storage)
    if pa.types.is_dictionary(kind):
        return plain_layout(values.dictionary).take(values.indices)
    if pa.types.is_run_end_encoded(kind):
        return plain_layout(_compute("run_end_decode", values))
    return values.cast(pa.large_string()) if str(kind) == "string_view" else values


def _can_hold(kind: pa.DataType, column: Column) -> bool:
    plain, values = plain_type(kind), column.categories
    if pa.types.is_floating(plain):  # what integers of pandas are where one of them is missing
        return all(type(v) is int for v in values)
    fits = (
        (pa.types.is_boolean(plain) and all(type(v) is bool for v in values))
        or (pa.types.is_integer(plain) and all(type(v) is int for v in values))
        or (is_text(plain) and all(isinstance(v, str) for v in values))
    )
    try:
        pa.array(values, type=plain if fits else None)
    except (pa.ArrowException, OverflowError):  # an integer that the column's type cannot hold
        return False
    return fits


def as_floats(values: pa.Array, column: Column) -> FloatArray:
    """Return the values (m,): numbers, times in the column's unit, or positions of categories.

    Ids are two floats each, (m, 2).
    """
    if pa.types.is_float64(values.type) and not (column.ids or column.categories):
        return _plain(values)
    if is_empty(values.type):
        return np.full((len(values), 2) if column.ids else len(values), np.nan)
    if column.ids:
        return _ids(values)
    if column.categories:
        if pa.types.is_dictionary(values.type):
            listed, indices = _listed(values)
            return _looked_up(_positions(listed, column), indices)
        return _positions(values, column)
    return numbers(values, column.unit)


def stored_type(column: Column) -> pa.DataType:
    """Return the type that a column's 64-bit floats are stored as: the two of an id as bytes."""
    return pa.binary(16) if column.ids else pa.float64()


def to_stored(floats: FloatArray, column: Column) -> pa.Array:
    """Return what `as_floats` returned as an Arrow array; `from_stored` returns it again."""
    buffer = pa.py_buffer(np.ascontiguousarray(floats))
    return pa.Array.from_buffers(stored_type(column), len(floats), [None, buffer])


def from_stored(values: pa.Array, column: Column) -> FloatArray:
    """Return the floats that `to_stored` stored."""
    width, end = stored_type(column).byte_width // 8, values.offset + len(values)
    floats = np.frombuffer(values.buffers()[1], np.float64, end * width)[values.offset * width :]
    return floats.reshape(-1, width) if column.ids else floats


def _positions(values: pa.Array, column: Column) -> FloatArray:
    kind, listed = values.type, list[Any](column.categories)
    if pa.types.is_floating(kind):
        values, kind = values.cast(pa.float64()), pa.float64()
        # Beyond, a float stands for several integers, and for none that is listed.
        listed = [value if abs(value) <= _MAX_EXACT else None for value in listed]
    known = pa.array(listed, type=kind)
    return numbers(_compute("index_in", values, value_set=known, skip_nulls=True))


def _listed(values: pa.DictionaryArray) -> tuple[pa.Array, pa.Array]:
    """Distinct values of a dictionary array that occur, and the position of each row's among them.

    A row's own copy of its value, which may be long, is never made.
    """
    occurring = values.indices.dictionary_encode()
    return values.dictionary.take(occurring.dictionary), occurring.indices


def _looked_up(listed: FloatArray, indices: pa.Array) -> FloatArray:
    """Look up listed values, (n,) or (n, 2), at each position; NaN where there is none."""
    index = _plain(indices)
    known = ~np.isnan(index)
    values = np.full((len(index), *listed.shape[1:]), np.nan)
    values[known] = listed[index[known].astype(np.int64)]
    return values


def ids_as(kind: pa.DataType) -> str:
    """Return the form in which ids are compared, "" without ids; equal ids of two may be two units.

    Floats of two widths are two forms: .1 is another number in each, and none of them tells which
    was written.
    """
    plain = plain_type(kind)
    if is_empty(kind):
        return ""
    if is_text(plain):
        return "text"
    return f"{plain.bit_width}-bit floats" if pa.types.is_floating(plain) else "exact numbers"


def _ids(values: pa.Array) -> FloatArray:
    """Return two floats a value (m, 2), equal for equal ids alone (`dbern.measure.unit_bounding`).

    Numbers are the nearest float and the remainder, texts 106 bits of a hash.
    """
    if pa.types.is_decimal(values.type) and values.type.scale == 0:
        with suppress(pa.ArrowInvalid):  # the same, and faster, where all are short enough
            values = _at_least_128(values).cast(pa.int64())
    kind = plain_type(values.type)
    if is_text(kind) or pa.types.is_decimal(kind):
        return _distinct_ids(values)
    near = numbers(values)
    rest = np.zeros(len(near))
    if pa.types.is_integer(kind) and kind.bit_width == _LIMB_BITS:
        integers = values.fill_null(0).to_numpy(zero_copy_only=False)
        high = (integers >> 32).astype(np.float64) * 2.0**32
        low = (integers & 0xFFFFFFFF).astype(np.float64)
        # Dekker's fast sum: high is zero or the larger, so the rest is exact.
        rest = low - ((high + low) - high)
    return np.column_stack([near, np.where(np.isnan(near), np.nan, rest)])


def _distinct_ids(values: pa.Array) -> FloatArray:
    indices = None
    if pa.types.is_dictionary(values.type):
        listed, indices = _listed(values)
    elif is_text(values.type) and values.nbytes > _LONG_TEXT_BYTES * len(values):
        listed = values  # looking for equal ones among long texts would copy them
    else:
        encoded = _at_least_128(values).dictionary_encode()
        listed, indices = encoded.dictionary, encoded.indices
    ids: Iterator[tuple[float, float]]
    if is_text(listed.type):
        # What is no Unicode has a hash too; taken from the buffer, for a text may be long.
        ids = (_id_of(value.as_buffer()) for value in listed.cast(pa.large_binary()))
    else:
        ids = (_id_of(value.as_py()) for value in listed)
    pairs = np.fromiter(chain.from_iterable(ids), np.float64, 2 * len(listed)).reshape(-1, 2)
    return pairs if indices is None else _looked_up(pairs, indices)


def _id_of(value: bytes | pa.Buffer | Decimal | None) -> tuple[float, float]:
    if value is None:
        return np.nan, np.nan
    if isinstance(value, Decimal):
        whole, near = Fraction(value), float(value)
        rest = float(whole - Fraction(near))
        if Fraction(near) + Fraction(rest) == whole:
            return near, rest
        value = str(whole).encode()
    digest = int.from_bytes(hashlib.blake2b(value, digest_size=16).digest(), "big")
    return float(digest >> 75), float((digest >> 22) & ((1 << 53) - 1))


def numbers(values: pa.Array, unit: TimeUnit | None = None) -> FloatArray:
    """Return numbers (m,), hours of times of day, dates and timestamps in `unit`; null is NaN."""
    kind = values.type
    if is_clock(kind):
        ticks = values.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())
        return hours_of_ticks(_plain(ticks), TICKS[kind.unit])
    if is_time(kind):
        if unit is None:
            raise TypeError("times without a unit")
        days = pa.types.is_date32(kind)
        ticks = values.cast(pa.int32() if days else pa.int64())
        tick = kind.unit if pa.types.is_timestamp(kind) else "D" if days else "ms"
        return unit.of_ticks(_plain(ticks), TICKS[tick])
    return _decimals(values) if pa.types.is_decimal(kind) else _plain(values)


def long_times(nanoseconds: pa.Array, seconds: pa.Array, unit: TimeUnit) -> FloatArray:
    """Return timestamps of 96 bits (m,) in `unit`; null is NaN.

    They are read as nanoseconds modulo 2^64, which are those of the years from 1678 to 2261, and as
    whole seconds. The two tell the rest exactly, for it is below 10^9 modulo 2^64.
    """
    near = numbers(nanoseconds, unit)
    ticks, whole = (
        times.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        for times in (nanoseconds, seconds)
    )
    rest = ticks - whole * 10**9  # modulo 2^64 again
    far = (whole + rest / 1e9) / unit.seconds
    within = np.isnan(near) | (np.abs(whole) < _MAX_NANOSECONDS // 10**9)
    return np.where(within, near, far)


def _plain(values: pa.Array) -> FloatArray:
    # An unsafe cast rounds integers beyond 2^53 to the nearest float instead of refusing the value.
    # Arrow's `to_numpy` would import pandas where it is installed, which takes half a second.
    as_they_are = pa.types.is_float64(values.type)
    floats = values if as_they_are else values.cast(pa.float64(), safe=False)
    if floats.null_count == len(floats):  # which may have no buffer
        return np.full(len(floats), np.nan)
    end = floats.offset + len(floats)
    plain = np.frombuffer(floats.buffers()[1], dtype=np.float64, count=end)[floats.offset :]
    return np.where(_nulls(floats), np.nan, plain) if floats.null_count else plain


def _nulls(values: pa.Array) -> BoolArray:
    known = np.frombuffer(values.buffers()[0], dtype=np.uint8)
    end = values.offset + len(values)
    return np.asarray(np.unpackbits(known, count=end, bitorder="little")[values.offset :] == 0)


def _at_least_128(values: pa.Array) -> pa.Array:
    """Widen decimals of fewer than 128 bits, which not all of Arrow knows."""
    kind = values.type
    if pa.types.is_decimal(kind) and kind.bit_width < 2 * _LIMB_BITS:
        return values.cast(pa.decimal128(kind.precision, kind.scale))
    return values


def _decimals(values: pa.Array) -> FloatArray:
    """Return unscaled integers, from their 64-bit limbs, over a power of ten.

    Arrow's own cast is one expression in C++, which compilers may fuse; numpy rounds each step.
    Up to 2^53 the integer is exact, and the quotient the nearest float to the decimal.
    """
    values, kind = _at_least_128(values), values.type
    width, end = values.type.bit_width // _LIMB_BITS, values.offset + len(values)
    if values.null_count == len(values):  # which may have no buffer
        return np.full(len(values), np.nan)
    limbs = np.frombuffer(values.buffers()[1], dtype="<u8", count=end * width)
    limbs = limbs.reshape(-1, width)[values.offset :]
    negative = limbs[:, -1] >> np.uint64(_LIMB_BITS - 1) == 1
    # Of a negative number the complement is its size less one: limbs of one sign never cancel.
    limbs = np.where(negative[:, None], ~limbs, limbs)
    total = np.zeros(len(values))
    for limb in limbs.T[::-1]:
        total = total * 2.0**_LIMB_BITS + limb.astype(np.float64)
    total = np.where(negative, -(total + 1), total)
    scale = float(10 ** abs(kind.scale))
    decimals = total / scale if kind.scale >= 0 else total * scale
    if values.null_count > 0:
        decimals[_nulls(values)] = np.nan
    return decimals


def value_of_text(text: str, column: Column) -> float | tuple[float, float]:
    """Return the value of a folder ``column=text``, typed by the spec; NaN where it does not fit.

    An id is two floats.
    """
    if column.ids:
        return _id_of(None if text == _NO_VALUE else text.encode())
    if text == _NO_VALUE:
        return np.nan
    if column.categories:
        return next((float(i) for i, v in enumerate(column.categories) if _equals(text, v)), np.nan)
    try:
        return number_of(text) if column.unit is None else column.unit.of(moment_of(text))
    except (ValueError, OverflowError):
        return np.nan


def _equals(text: str, value: str | int | bool) -> bool:
    match value:
        case bool():
            return text.lower() == str(value).lower()
        case str():
            return text == value
    return re.fullmatch("[-+]?[0-9]{1,19}", text) is not None and int(text) == value


def check_kind(path: str, kind: pa.DataType, column: Column) -> None:
    """Refuse a column of a file whose type is not what the spec takes it for."""
    shown = type_text(kind)
    is_of = f"{column.key}: is of type {shown} in {path}"
    if is_empty(kind):
        return
    if column.ids:
        if not (is_text(plain_type(kind)) or is_number(kind)):
            raise SpecError(f"{is_of}, and ids are numbers or text. Convert it to one of them.")
    elif column.categories:
        if not _can_hold(kind, column):
            raise SpecError(
                f"{column.key}: {column.name} is of type {shown} in {path}. Write values that it "
                "can hold, or convert the column to integers, booleans or text."
            )
    elif is_time(kind) and column.unit is None:
        raise SpecError(
            f"{is_of}. Write two dates, such as [2026-01-01, 2027-01-01], or two times, such as "
            "[2026-01-01T00:00:00Z, 2026-01-02T00:00:00Z]."
        )
    elif is_clock(kind) and not column.of_hours:
        raise SpecError(f"{is_of}. Write two numbers of hours, such as [0.0, 24.0].")
    elif is_number(kind) and column.unit is not None:
        raise SpecError(f"{is_of}, and its bounds are times. Write two numbers.")
    elif not (is_time(kind) or is_measured(kind, column.unit)):
        raise SpecError(
            f"{is_of}, and only integers, floats, decimals, booleans, dates and times are "
            "available here in this version. Convert the column or choose another."
        )
