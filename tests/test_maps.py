"""The shipped maps: accuracy over the whole range, special values, streaming stores, and the same bits on any path."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from test_targets import KINDS
from variants import KERNELS, VARIANTS, Item

import tunegen
from tunegen import Declined, kernels
from tunegen.box import this_box
from tunegen.making.compile import assembly, initialize_all_targets
from tunegen.making.render import render
from tunegen.parallel import Split
from tunegen.public.kernel import KernelMethods
from tunegen.public.variant import Variant
from tunegen.requires import parse_requires
from tunegen.signature import BOOL

pytestmark = pytest.mark.usefixtures("shared_objects")

MAPS = [kernel for kernel in KERNELS if kernel.spec.function.gen.startswith("map/")]
ITEMS = [item for item in VARIANTS if item.kernel in MAPS]
STREAMING = [item for item in ITEMS if item.row.perm["stream"]]
NUMBERS = [item for item in ITEMS if item.element_type != BOOL and len(item.spec.signature.operands) == 2]
NAN, INF = float("nan"), float("inf")


def variant_of(item: Item) -> Any:
    missing = parse_requires(item.row.requires).missing(this_box().feature_set)
    if missing:
        pytest.skip(f"this box has no {missing}")
    variant = Variant(item.spec, item.row, (item.element_type,))
    try:
        variant.ensure_loaded()
    except Declined as declined:
        pytest.skip(f"declined: {declined}")
    return variant


def inputs_of(item: Item, n: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    count = len(item.spec.signature.operands) - 1
    drawn = [rng.uniform(-4, 4, n).astype(item.element_type.dtype) for _ in range(count)]
    return [rng.random(n) < 0.5] if item.element_type == BOOL else drawn


def errors_in_ulp(kernel: KernelMethods, x: np.ndarray, got: np.ndarray) -> np.ndarray:
    """Per element; 0 where both are the same NaN or infinity, infinite where one alone is."""
    wide = x.astype(np.float64 if x.dtype == np.float32 else np.longdouble)
    exact = np.empty_like(wide)
    with np.errstate(all="ignore"):
        kernel.reference(wide, exact)
        rounded = exact.astype(x.dtype)
        error = np.abs(got.astype(wide.dtype) - exact) / np.spacing(np.abs(rounded)).astype(wide.dtype)
    same = (got == rounded) & ~np.isfinite(rounded) | np.isnan(got) & np.isnan(rounded)
    return np.where(same, 0, np.where(np.isnan(error), INF, error)).astype(np.float64)


def every_kind_of_number(dtype: np.dtype[Any], count: int = 1 << 12) -> np.ndarray:
    """Numbers of every magnitude, denormals included, numbers around 1, and those where the functions bend."""
    rng, info = np.random.default_rng(1), np.finfo(dtype)
    low, high = np.log2(float(info.smallest_normal)), np.log2(float(info.max))
    magnitudes = [rng.uniform(low, high, count), rng.uniform(-8, 8, count), rng.uniform(-1, 1, count)]
    parts = [np.exp2(m) for m in magnitudes] + [1 + rng.normal(0, 1e-3, count), rng.uniform(0, 800, count)]
    numbers = np.concatenate(parts)
    denormals = rng.integers(1, 1 << info.nmant, count) * np.asarray(info.smallest_subnormal)
    with np.errstate(over="ignore"):
        found = np.concatenate([numbers.astype(dtype), denormals.astype(dtype)])
    return np.concatenate([found, -found])


@pytest.mark.parametrize("mask", ["", "-avx512f", "-avx"])
@pytest.mark.parametrize("item", [i for i in NUMBERS if i.row.suffix.endswith("_unroll2_nostream")], ids=str)
def test_a_map_is_accurate_for_every_kind_of_number(item: Item, mask: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tables and without, and without fused multiply-add."""
    if mask and mask[1:] not in this_box().feature_set:
        pytest.skip(f"this box has no {mask[1:]} to mask")
    monkeypatch.setenv("TUNE_FEATURES", mask)
    variant = variant_of(item)
    x = every_kind_of_number(item.element_type.dtype)
    limit = item.spec.gate.value  # 0 for a bitwise gate
    error = errors_in_ulp(item.kernel, x, variant(x, np.empty_like(x)))
    worst = int(error.argmax())
    assert error[worst] <= limit, f"{error[worst]} ULP at {x[worst]!r}"


SPECIAL: dict[str, list[tuple[float, float]]] = {
    "abs": [(-0.0, 0.0), (0.0, 0.0), (-INF, INF), (INF, INF), (-1.0, 1.0), (-1e-320, 1e-320)],
    "exp": [(-0.0, 1.0), (0.0, 1.0), (-INF, 0.0), (INF, INF), (1e30, INF), (-1e30, 0.0), (1e-320, 1.0)],
    "log": [(0.0, -INF), (-0.0, -INF), (1.0, 0.0), (INF, INF), (-INF, NAN), (-1.0, NAN), (-1e-40, NAN)],
    "sigmoid": [(0.0, 0.5), (-0.0, 0.5), (-INF, 0.0), (INF, 1.0), (-1e30, 0.0), (1e30, 1.0), (-1e-320, 0.5)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1.0), (-INF, -1.0), (1e30, 1.0), (-1e30, -1.0), (1e-40, 1e-40),
             (-1e-320, -1e-320)],
    "gelu": [(0.0, 0.0), (-INF, 0.0), (INF, INF), (1e30, 1e30)],
}  # fmt: skip


@pytest.mark.parametrize("item", NUMBERS, ids=str)
def test_special_values_come_out_as_their_limits_with_their_sign(item: Item) -> None:
    variant = variant_of(item)
    x, expected = np.array([*SPECIAL[item.kernel.name], (NAN, NAN)], item.element_type.dtype).T.copy()
    out = variant(x, np.empty_like(x))
    np.testing.assert_array_equal(out, expected)
    signed = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(out[signed]), np.signbit(expected[signed]))


def test_each_map_has_the_special_values_of_a_test() -> None:
    assert {item.kernel.name for item in NUMBERS} == set(SPECIAL)


@pytest.mark.parametrize("item", STREAMING, ids=str)
def test_streaming_gives_the_bits_of_ordinary_stores_at_any_alignment_and_in_place(item: Item) -> None:
    """Every offset of the output within a vector, lengths that end before and after it, canaries on both sides."""
    variant = variant_of(item)
    plain = next(o for o in ITEMS if o.kernel is item.kernel and o.element_type == item.element_type
                 and o.row.perm == {**item.row.perm, "stream": False})  # fmt: skip
    ordinary, vl, itemsize = variant_of(plain), int(item.row.perm["vl"]), item.element_type.bytes
    buffer = np.zeros((vl * 9 + 128) * itemsize, np.uint8)
    first = -buffer.ctypes.data % 64
    lengths = [0, 1, vl - 1, vl, vl + 1, 2 * vl, 3 * vl - 1, 4 * vl + 3, 6 * vl + vl // 2]
    for offset, n in product(sorted({*range(0, vl, max(vl // 8, 1)), 1, vl - 1}), lengths):
        inputs = inputs_of(item, n, offset)
        expected = ordinary(*inputs, np.empty_like(inputs[0]))
        buffer[...] = 0xA5
        start = first + (vl + offset) * itemsize
        out = buffer[start : start + n * itemsize].view(item.element_type.dtype)
        assert variant(*inputs, out) is out
        assert out.tobytes() == expected.tobytes(), f"offset {offset}, n = {n}"
        assert (buffer[:start] == 0xA5).all()
        assert (buffer[start + n * itemsize :] == 0xA5).all()
        out[...] = inputs[0]
        variant(out, *inputs[1:], out)
        assert out.tobytes() == expected.tobytes(), f"in place, offset {offset}, n = {n}"
    assert variant.slow_calls == 0


STORES = {"x86-64-v2": "movnt", "x86-64-v3": "movnt", "x86-64-v4": "movnt", "aarch64": "stnp"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kernel", MAPS, ids=lambda kernel: kernel.name)
def test_streaming_rows_and_no_others_store_past_the_caches(kernel: KernelMethods, kind: str) -> None:
    initialize_all_targets()
    features, fence = KINDS[kind].features, "sfence"
    for item in [item for item in ITEMS if item.kernel is kernel and item.row.perm["unroll"] == 2]:
        if parse_requires(item.row.requires).missing(features):
            continue
        request = item.spec.function.request(item.row, item.element_type, features)
        try:
            text = assembly(render(item.spec.templates, request), KINDS[kind].target)
        except Declined:
            continue
        streams = item.row.perm["stream"]
        assert (STORES[kind] in text) == streams, item
        assert (fence in text) == (streams and kind != "aarch64"), item


@pytest.mark.parametrize("kernel", MAPS, ids=lambda kernel: kernel.name)
def test_all_maps_have_the_same_parameters_and_split(kernel: KernelMethods) -> None:
    assert kernel.spec.schema.names == kernels.exp.spec.schema.names
    assert isinstance(kernel.spec.parallel, Split)
    assert kernel.spec.fallback.regimes == ("N >= stream.minimum_elements", "")


@pytest.mark.parametrize("kernel", MAPS, ids=lambda kernel: kernel.name)
def test_threads_grain_and_streaming_change_no_bit(kernel: KernelMethods, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_THREADS", "3")
    never = (1 << 40) - 1
    for element_type, n in product(kernel.signature.element_types, (0, 1, 1000, 4099)):
        item = Item(kernel, next(iter(kernel.spec.grid)), element_type)
        inputs, found = inputs_of(item, n), set()
        for threads, split_from, grain, stream_from in ((1, never, 0, never), (1, never, 0, 1), (3, 1, 0, never),
                                                        (3, 1, 7, 1), (3, 1, 1000, never)):  # fmt: skip
            values = {"parallel.minimum_elements": split_from, "parallel.grain": grain}
            asked = {f"{kernel.name}[{element_type.name}]": {**values, "stream.minimum_elements": stream_from}}
            with tunegen.session(threads=threads, parameters=asked) as session:
                out = np.zeros(n + 1, element_type.dtype)[1:]
                session.bind(kernel)(*inputs, out)
                found.add(out.tobytes())
        assert len(found) == 1


def test_what_streams_is_decided_by_the_whole_size_and_the_value_of_the_session() -> None:
    with tunegen.session(parameters={"add": {"stream.minimum_elements": 100}}) as session:
        add = session.bind(kernels.add)
        small, large = (add.choose("f32", {"N": n}) for n in (99, 100))
        assert small is not None
        assert large is not None
        assert small.address != large.address
        streaming, plain = add.stamp["f32"].choices
        assert streaming.condition == "N >= stream.minimum_elements"
        assert (streaming.emitted, plain.emitted) == ("vl8_unroll2_stream", "vl8_unroll2_nostream") or "avx" not in (
            this_box().feature_set
        )
