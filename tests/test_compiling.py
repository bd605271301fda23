"""Compiled functions: kept where there is a folder for them, and compiled once by many threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from numba import types

from dbern import compiling

ONE = types.float64(types.float64)


def test_compiled_loops_do_without_a_folder_to_keep_them_in(monkeypatch):
    original, told = compiling.numba.njit, []

    def refusing(signature=None, cache=False, **options):
        if signature is ONE:  # numba itself is a caller, too
            told.append(cache)
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return original(signature, **options)

    def third(x):
        return x / 3.0

    monkeypatch.setattr(compiling.numba, "njit", refusing)
    assert compiling.compiled(third, ONE)(1.0) == 1 / 3
    assert told == [True, False]


def test_threads_that_need_a_function_at_once_compile_it_once(monkeypatch):
    original, told = compiling.numba.njit, []

    def counting(signature=None, **options):
        if signature is ONE:
            told.append(signature)
        return original(signature, **options)

    def fifth(x):
        return x / 5.0

    monkeypatch.setattr(compiling.numba, "njit", counting)
    with ThreadPoolExecutor(4) as pool:
        values = list(pool.map(lambda x: compiling.compiled(fifth, ONE)(x), [1.0] * 8))
    assert values == [0.2] * 8
    assert len(told) == 1


def test_products_and_sums_are_not_fused():
    """Fused, the square of 1 + 2^-30 keeps its last term, 2^-60."""

    def square_less(x):
        return x * x - 1.0

    x = 1.0 + 2.0**-30
    assert compiling.compiled(square_less, ONE)(x) == x * x - 1.0
