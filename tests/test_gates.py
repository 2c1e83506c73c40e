"""Gates: exact about NaN, Inf and signed zero, and strict enough that a wrong answer fails."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunegen import bitwise, bound, ulp
from tunegen.signature import ELEMENT_TYPES

F32, F64 = np.float32, np.float64
NAN, INF = float("nan"), float("inf")
TOP = float(np.finfo(F32).max)


def check(gate, got, expected, dtype=F32, sizes=None):
    oracle = gate.oracle_dtype(ELEMENT_TYPES["f32" if dtype is F32 else "f64"])
    with np.errstate(over="ignore"):
        expected = np.array(expected, np.float64).astype(oracle)
    return gate.check(np.array(got, dtype), expected, sizes or {"K": 64})


@pytest.mark.parametrize("gate", [bitwise(), ulp(1), ulp(0), bound("K")], ids=str)
@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("values", [[], [0.0], [NAN, 1.0], [INF, -INF, -0.0], [1e-40, 1.0], 2.0, [[1.0], [2.0]]])
def test_the_same_passes(gate, dtype, values):
    assert check(gate, values, values, dtype) is None


@pytest.mark.parametrize("gate", [bitwise(), ulp(4), bound("K")], ids=str)
@pytest.mark.parametrize(
    ("got", "expected"),
    [(NAN, 1.0), (1.0, NAN), (INF, 1.0), (INF, -INF), (1.0, INF), (INF, NAN), (NAN, INF), (0.0, 1.0), (-1.0, 1.0)],
)
def test_what_is_not_close_fails_wherever_it_is(gate, got, expected):
    row = [1.0, 1.0, got, 1.0]
    wrong = check(gate, row, [1.0, 1.0, expected, 1.0])
    assert wrong is not None
    assert wrong.index == (2,)
    assert repr(wrong.got) == repr(float(got))
    assert repr(wrong.expected) == repr(float(expected))
    assert str(gate) in wrong.bound


def test_bitwise_sees_the_sign_of_zero_and_the_last_bit():
    assert check(bitwise(), [0.0], [-0.0]) is not None
    assert check(bitwise(), [np.nextafter(F32(1), F32(2))], [1.0]) is not None
    assert check(bitwise(), [-NAN], [NAN]) is None


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(0, 6))
def test_ulp_counts_steps(value, steps):
    """A value `steps` floats away is within ulp(steps), and not within ulp(steps / 3)."""
    got = F32(value)
    for _ in range(steps):
        got = np.nextafter(got, F32(INF))
    if np.isfinite(got):
        assert check(ulp(steps), [got], [value]) is None or abs(value) > abs(got)
        if steps:
            assert check(ulp(steps / 3), [got], [value]) is not None


def test_ulp_is_measured_from_the_exact_result():
    exact = F64(1) + F64(0.75) * np.spacing(F32(1))
    assert check(ulp(0.5), [F32(1) + np.spacing(F32(1))], [exact]) is None
    assert check(ulp(0.5), [F32(1)], [exact]) is not None
    assert check(ulp(0.75), [F32(1)], [exact]) is None


@pytest.mark.parametrize("gate", [ulp(1), bound("K")], ids=str)
def test_an_overflow_at_the_top_of_the_range_is_fair(gate):
    assert check(gate, [INF], [1e300]) is None
    assert check(gate, [INF], [TOP]) is None
    assert check(gate, [-INF], [TOP]) is not None
    assert check(gate, [TOP], [TOP * (1 + 2.0**-25)]) is None
    assert check(gate, [TOP], [1e300]) is not None


def test_bound_grows_with_the_root_of_the_reduction_length():
    u = 2.0**-24
    for k, factor in ((16, 4), (64, 8), (1024, 32), (1, 4)):
        assert check(bound("K"), [1 + 7.9 * factor * u], [1.0], sizes={"K": k}) is None
        assert check(bound("K"), [1 + 8.3 * factor * u], [1.0], sizes={"K": k}) is not None


@pytest.mark.parametrize("huge", [1e40, 1e300, TOP * 2, INF, NAN])
def test_an_element_that_overflows_gives_the_others_no_room(huge):
    assert check(bound("K"), [INF if huge == huge else NAN, 0.0, 0.0], [huge, 1.0, 1.0]) is not None
    assert check(bound("K"), [INF if huge == huge else NAN, 1.0, 1.0], [huge, 1.0, 1.0]) is None


def test_bound_gives_an_element_near_zero_the_room_of_its_neighbours_but_not_more():
    expected = np.ones(100)
    expected[7] = 0
    assert check(bound("K"), expected + 1e-6, expected) is None
    assert check(bound("K"), np.zeros(100), expected) is not None


def test_gates_that_differ_have_texts_that_differ():
    """The text is part of an entry's digest."""
    gates = [bitwise(), ulp(2), ulp(2.5), ulp(1234567), ulp(1234567.5), bound("K"), bound("M"), bound("K", 4)]
    assert len({str(gate) for gate in gates}) == len(gates)
    assert str(bound("K")) == "bound('K')"
    assert str(ulp(2, nonfinite="ignore")) == "ulp(2.0, nonfinite='ignore')"


@pytest.mark.parametrize("make", [bitwise, lambda **o: ulp(2, **o), lambda **o: bound("K", **o)])
def test_a_kernel_may_declare_that_nan_and_infinity_do_not_matter(make):
    """Then anything goes where the reference has one, and nothing else does."""
    lenient = make(nonfinite="ignore")
    assert check(lenient, [0.0, 1.0, 2.0, INF], [NAN, 1.0, INF, 1e300]) is None
    assert check(make(), [0.0, 1.0], [NAN, 1.0]) is not None
    assert check(lenient, [NAN, 1.0], [1.0, 1.0]) is not None
    assert check(lenient, [NAN, 0.5], [NAN, 1.0]).index == (1,)


def test_checking_warns_of_nothing(recwarn):
    for gate in (bitwise(), ulp(0), ulp(2), bound("K")):
        check(gate, [INF, NAN, TOP, 0.0], [1e300, INF, 1e300, 1e-320])
    assert not recwarn.list


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("made", [bitwise(), ulp(2), ulp(2, nonfinite="ignore"), bitwise(nonfinite="ignore")])
def test_the_verdict_over_an_array_is_that_over_its_elements(dtype, made):
    """Equal bits are passed by at once; that changes no verdict, of special values neither."""
    rng = np.random.default_rng(1)
    info = np.finfo(dtype)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, info.max, -info.max, info.smallest_subnormal, 1.0], dtype)
    for _ in range(200):
        expected = rng.choice(special, 6).astype(np.longdouble)
        got = np.where(rng.random(6) < 0.7, expected.astype(dtype), rng.choice(special, 6))
        got = np.where(rng.random(6) < 0.3, np.nextafter(got, dtype(0)), got).astype(dtype)
        found = made.check(got.reshape(2, 3), expected.reshape(2, 3), {})
        wrong = [i for i in range(6) if made.check(got[i : i + 1], expected[i : i + 1], {}) is not None]
        assert (found is not None) == bool(wrong)
        if found is not None:
            assert found.index[0] * 3 + found.index[1] in wrong
