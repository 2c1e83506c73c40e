"""`-- --tune`: found and taken out of the command line, wherever it stands, and nothing else is touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunegen.public import request
from tunegen.public.request import Request, take_out

ALL = Request(everything=True)


@pytest.mark.parametrize(
    ("given", "left", "found"),
    [
        ("app", "app", None),
        ("app --tune", "app --tune", None),
        ("app -- a --tune", "app -- a --tune", None),
        ("app --tune --", "app --tune --", None),
        ("app --", "app --", None),
        ("-- --tune", "-- --tune", None),
        ("app -- --tuned", "app -- --tuned", None),
        ("app -- --tune", "app", ALL),
        ("app a --b -- --tune", "app a --b", ALL),
        ("app -- --tune c d", "app -- c d", ALL),
        ("app -- a -- --tune", "app -- a", ALL),
        ("app -- -- --tune", "app --", ALL),
        ("app -- --tune -- --tune", "app --", ALL),
        ("app -- --tune=gemm,exp[f32]", "app", Request(False, ("gemm", "exp[f32]"))),
        ("app -- --tune=a --tune=b,a x", "app -- x", Request(False, ("a", "b"))),
        ("app -- --tune --tune=b", "app", Request(True, ("b",))),
        ("app -- --tune=", "app", Request(False)),
    ],
)
def test_a_request_is_taken_out(given, left, found):
    argv = given.split()
    assert take_out(argv) == found
    assert argv == left.split()


@given(st.lists(st.sampled_from(["--", "--tune", "--tune=x", "a", "", "-t", "a b\n", "\udcff"]), max_size=8))
def test_nothing_but_requests_and_their_dashes_is_taken(words):
    argv = ["app", *words]
    found = take_out(argv)
    assert argv[0] == "app"
    assert [w for w in argv[1:] if w[:2] != "--"] == [w for w in words if w[:2] != "--"]
    assert found is not None or argv == ["app", *words]
    # what is left asks for nothing, unless its dashes came together only now
    assert sum(w.startswith("--tune") for w in argv) <= sum(w.startswith("--tune") for w in words)


def test_a_request_is_kept_until_it_is_asked_for_once():
    argv = ["app", "--", "--tune=x"]
    request.keep(argv)
    request.keep(argv)
    assert argv == ["app"]
    assert str(request.kept()) == "-- --tune=x"
    assert request.kept() is None
