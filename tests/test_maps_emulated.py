"""The maps as AArch64 runs them, under an emulator where there is one: accurate, and inside their output."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from test_maps import ITEMS, errors_in_ulp, every_kind_of_number
from test_targets import KINDS
from variants import Item

from tunegen import Declined
from tunegen.making.compile import initialize_all_targets
from tunegen.making.make import make_object
from tunegen.requires import parse_requires
from tunegen.signature import BOOL, ElementType

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64-static"
KIND = KINDS["aarch64"]
COUNT = 4099
OFFSETS = (0, 1, 2, 3, 7, 16)
CANARY = 0xA5

pytestmark = pytest.mark.skipif(
    not (shutil.which(COMPILER) and shutil.which(EMULATOR)), reason=f"needs {COMPILER} and {EMULATOR}"
)

DRIVER = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
%(declarations)s
static struct { void *function; long itemsize, inputs; } table[] = {%(table)s};
static char in[2][%(bytes)d] __attribute__((aligned(64))), out[%(bytes)d + 1024] __attribute__((aligned(64)));

int main(int argc, char **argv) {
  long offsets[] = {%(offsets)s};
  for (unsigned v = 0; v < sizeof table / sizeof *table; v++) {
    char name[16];
    snprintf(name, sizeof name, "%%ld.bin", table[v].itemsize);
    FILE *file = fopen(name, "rb");
    if (!file || !fread(in[0], 1, sizeof in[0], file)) return 1;
    fclose(file);
    memcpy(in[1], in[0], sizeof in[0]);
    for (unsigned i = 0; i < sizeof offsets / sizeof *offsets; i++) {
      memset(out, %(canary)d, sizeof out);
      char *to = out + 512 + offsets[i] * table[v].itemsize;
      if (table[v].inputs == 1)
        ((void (*)(void *, void *, long, void *))table[v].function)(in[0], to, %(count)d, 0);
      else
        ((void (*)(void *, void *, void *, long, void *))table[v].function)(in[0], in[1], to, %(count)d, 0);
      fwrite(to - 64, 1, %(count)d * table[v].itemsize + 128, stdout);
    }
  }
  return 0;
}
"""


def numbers(element_type: ElementType) -> np.ndarray:
    if element_type == BOOL:
        return (np.arange(COUNT) % 5).astype(np.uint8).view(bool)
    return np.resize(every_kind_of_number(element_type.dtype, 400), COUNT)


def built(item: Item, folder: Path) -> bool:
    """Writes the variant's object; False where there is none for this kind."""
    if parse_requires(item.row.requires).missing(KIND.features) or item.row.perm["unroll"] != 2:
        return False
    try:
        made = make_object(
            item.spec.function, item.row, item.element_type, item.spec.templates, KIND.features, KIND.target
        )
    except Declined:
        return False
    (folder / f"{item}.o").write_bytes(made.image)
    return True


def test_every_map_is_right_on_aarch64_at_any_alignment(tmp_path: Path) -> None:
    initialize_all_targets()
    items = [item for item in ITEMS if built(item, tmp_path)]
    assert {str(item.kernel.name) for item in items} == {str(item.kernel.name) for item in ITEMS}
    for element_type in {item.element_type for item in items}:
        (tmp_path / f"{element_type.bytes}.bin").write_bytes(numbers(element_type).tobytes())
    rows = [f"{{{item}, {item.element_type.bytes}, {len(item.spec.signature.operands) - 1}}}" for item in items]
    (tmp_path / "driver.c").write_text(DRIVER % {
        "declarations": "\n".join(f"void {item}(void);" for item in items), "table": ", ".join(rows),
        "offsets": ", ".join(map(str, OFFSETS)), "bytes": COUNT * 8, "count": COUNT, "canary": CANARY,
    })  # fmt: skip
    objects = [f"{item}.o" for item in items]
    subprocess.run([COMPILER, "-O1", "-static", "-o", "maps", "driver.c", *objects], cwd=tmp_path, check=True)
    done = subprocess.run(
        [EMULATOR, "-cpu", "max", "./maps"], cwd=tmp_path, check=True, stdout=subprocess.PIPE, timeout=60
    )
    rest = done.stdout
    for item in items:
        x, found = numbers(item.element_type), set()
        for _ in OFFSETS:
            size = x.nbytes + 128
            one, rest = rest[:size], rest[size:]
            assert {*one[:64], *one[-64:]} == {CANARY}, f"{item} wrote beside its output"
            found.add(one[64:-64])
        assert len(found) == 1, f"{item}: the bits depend on the alignment"
        got = np.frombuffer(found.pop(), item.element_type.dtype)
        if item.element_type == BOOL:
            assert (got.view(np.uint8) == (x.view(np.uint8) == 0)).all()
        elif item.kernel.name == "add":
            with np.errstate(over="ignore"):
                np.testing.assert_array_equal(got, x + x)
        else:
            assert errors_in_ulp(item.kernel, x, got).max() <= item.spec.gate.value, item
    assert not rest
