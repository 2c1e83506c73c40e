"""Every environment variable is typed, in one table."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunegen import knobs
from tunegen.errors import KnobError


@pytest.mark.parametrize(
    ("knob", "text", "allowed"),
    [
        (knobs.MODE, "fast", "normal, tune, test"),
        (knobs.POLICY, "maybe", "fallback, warn, error, auto, relaunch, restart, live, reference"),
        (knobs.THREADS, "0", "from 1 up"),
        (knobs.THREADS, "two", "from 1 up"),
        *(
            (knobs.CACHE_LIMIT, text, "a number of bytes")
            for text in ("much", "-1", "1.5G", "1X", "k", "\u0663", "9" * 30)
        ),
        (knobs.LOG, "loud", "debug, info, warning, error"),
        *((knobs.SHARE, text, "above 0 up to 1") for text in ("0", "0%", "-1", "1.5", "101%", "half", "nan", "%")),
        (knobs.HOME, "~no-such-user/x", "no such folder"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(monkeypatch, knob, text, allowed):
    monkeypatch.setenv(knob.name, text)
    with pytest.raises(KnobError, match=allowed) as caught:
        knob.get()
    assert knob.name in str(caught.value)
    assert text in str(caught.value)


@pytest.mark.parametrize("knob", knobs.TABLE, ids=lambda knob: knob.name)
def test_an_empty_text_counts_as_unset(monkeypatch, knob):
    monkeypatch.setenv(knob.name, "")
    assert knob.get() == knob.default


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("7", 7), ("7B", 7), ("2k", 2048), ("2 KiB", 2048), ("3M", 3 << 20), ("1gb", 1 << 30), ("1T", 1 << 40)],
)
def test_a_number_of_bytes_may_have_a_unit(monkeypatch, text, size):
    monkeypatch.setenv("TUNE_CACHE_LIMIT", text)
    assert knobs.CACHE_LIMIT.get() == size


@pytest.mark.parametrize(("text", "share"), [("0.25", 0.25), ("25%", 0.25), (" 5 % ", 0.05), ("1", 1.0), ("100%", 1.0)])
def test_a_share_is_a_number_or_a_percentage(monkeypatch, text, share):
    monkeypatch.setenv("TUNE_SHARE", text)
    assert knobs.SHARE.get() == share


def test_paths_become_absolute_and_know_home(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/somewhere")
    monkeypatch.setenv("TUNE_HOME", "here")
    monkeypatch.setenv("TUNE_MANIFEST", "~/one.tune.json")
    assert knobs.HOME.get() == tmp_path / "here"
    assert knobs.MANIFEST.get() == Path("/somewhere/one.tune.json")


def test_variables_of_this_process_are_set_and_taken_away(monkeypatch):
    monkeypatch.setenv("TUNE_MODE", "tune")
    knobs.change({"TUNE_MODE": None, "TUNE_POLICY": "warn"})
    assert (knobs.MODE.get(), knobs.POLICY.get()) == ("normal", "warn")
    knobs.change({"TUNE_POLICY": None})
    assert knobs.POLICY.get() is None
    assert knobs.child_environment(TUNE_MODE="test")["TUNE_MODE"] == "test"


def test_an_unknown_variable_is_reported_once(caplog):
    for _ in range(2):
        knobs.report_unknown({"TUNE_MOED": "test", "TUNE_MODE": "test", "PATH": ""})
    assert [r.message.split(";")[0] for r in caplog.records] == ["unknown environment variable TUNE_MOED"]


def test_begin_reports_unknown_variables_and_starts_the_log_once(monkeypatch, caplog):
    monkeypatch.setenv("TUNE_MOED", "test")
    monkeypatch.setenv("TUNE_LOG", "info")
    log = logging.getLogger("tunegen")
    before = len(log.handlers)
    knobs.begin()
    knobs.begin()
    knobs.start_logging()
    assert len(log.handlers) == before + 1
    assert log.level == logging.INFO
    assert sum("TUNE_MOED" in r.message for r in caplog.records) == 1


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1))
def test_no_text_does_anything_but_give_a_value_or_a_knob_error(text):
    with pytest.MonkeyPatch.context() as patch:
        for knob in knobs.TABLE:
            patch.setenv(knob.name, text)
            with suppress(KnobError):
                knob.get()
