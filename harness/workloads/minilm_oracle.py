"""The same model once more, as its authors wrote it down: float64, one sentence at a time, no padding and no kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tunegen.harness.workloads.minilm_model import Model

Array = NDArray[np.float64]


class Oracle:
    """What every forward pass must agree with."""

    def __init__(self, model: Model) -> None:
        self._tensors, self._config = model.tensors, model.config
        self._wide: dict[str, Array] = {}

    def embed(self, sentences: Sequence[Sequence[int]]) -> Array:
        """The vectors of `sentences`."""
        return np.stack([self._embed(sentence) for sentence in sentences])

    def _embed(self, tokens: Sequence[int]) -> Array:
        x = self._tensors["embeddings.word_embeddings.weight"][tokens].astype(np.float64)
        x += self._get("embeddings.position_embeddings.weight")[: len(tokens)]
        x += self._get("embeddings.token_type_embeddings.weight")[0]
        x = self._norm(x, "embeddings.LayerNorm")
        for i in range(self._config.num_hidden_layers):
            name = f"encoder.layer.{i}"
            attended = self._dense(self._attention(x, f"{name}.attention.self"), f"{name}.attention.output.dense")
            x = self._norm(x + attended, f"{name}.attention.output.LayerNorm")
            inner = self._dense(x, f"{name}.intermediate.dense")
            inner *= 0.5 * (1 + _erf(inner / math.sqrt(2)))
            x = self._norm(x + self._dense(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        mean = x.mean(axis=0)
        return np.asarray(mean / np.sqrt(np.sum(mean**2)))

    def _attention(self, x: Array, name: str) -> Array:
        heads = self._config.num_attention_heads
        query, key, value = (
            np.split(self._dense(x, f"{name}.{part}"), heads, axis=1) for part in ("query", "key", "value")
        )
        out = []
        for q, k, v in zip(query, key, value, strict=True):
            scores = q @ k.T / math.sqrt(q.shape[1])
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out.append(weights / weights.sum(axis=1, keepdims=True) @ v)
        return np.concatenate(out, axis=1)

    def _dense(self, x: Array, name: str) -> Array:
        return np.asarray(x @ self._get(f"{name}.weight").T + self._get(f"{name}.bias"))

    def _norm(self, x: Array, name: str) -> Array:
        centred = x - x.mean(axis=1, keepdims=True)
        deviation = np.sqrt(np.mean(centred**2, axis=1, keepdims=True) + self._config.layer_norm_eps)
        return np.asarray(centred / deviation * self._get(f"{name}.weight") + self._get(f"{name}.bias"))

    def _get(self, name: str) -> Array:
        if name not in self._wide:
            self._wide[name] = self._tensors[name].astype(np.float64)
        return self._wide[name]


def _erf(x: Array) -> Array:
    return np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size).reshape(x.shape)
