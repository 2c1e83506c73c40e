"""The forward pass of a BERT encoder on stamped kernels. It calls them like any function, and names no variant.

A batch is padded to its longest sentence. All arrays of a batch shape are made once and kept in a `Workspace`, and so
are the views into them that attention works on: one query, key, value, score and context matrix per sentence and head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tunegen.harness.workloads.minilm_model import Config, Model
from tunegen.kernels import add, gemm, layernorm, linear, linear_gelu, softmax

Array = NDArray[np.float32]


class Pair(NamedTuple):
    """Weight and bias of a dense layer, or gain and offset of a layer normalisation."""

    weight: Array
    bias: Array


class Layer(NamedTuple):
    """The parameters of one encoder layer; query, key and value are one product."""

    qkv: Pair
    attention_out: Pair
    attention_norm: Pair
    up: Pair
    down: Pair
    norm: Pair


class Workspace:
    """The arrays for batches of one shape, and the views that attention calls its kernels with."""

    def __init__(self, batch: int, length: int, config: Config, intermediate: int) -> None:
        rows, width, heads = batch * length, config.hidden_size, config.num_attention_heads
        size = width // heads
        self.hidden = np.empty((rows, width), np.float32)
        self.update = np.empty_like(self.hidden)
        self.qkv = np.empty((rows, 3 * width), np.float32)
        self.context = np.empty_like(self.hidden)
        self.up = np.empty((rows, intermediate), np.float32)
        self.mask = np.empty((batch, length), np.float32)
        self.mean = np.empty((batch, length), np.float32)
        self.pooled = np.empty((batch, width), np.float32)
        self.no_bias = np.zeros(length, np.float32)
        self.sentences = self.hidden.reshape(batch, length, width)
        scores = np.empty((batch, heads, length, length), np.float32)
        shares = np.empty_like(scores)
        self.scores_shares = [
            (scores[b].reshape(-1, length), shares[b].reshape(-1, length), self.mask[b]) for b in range(batch)
        ]
        parts = self.qkv.reshape(batch, length, 3, heads, size)
        context = self.context.reshape(batch, length, heads, size)
        each = [(b, h) for b in range(batch) for h in range(heads)]
        self.query_key = [(parts[b, :, 0, h], parts[b, :, 1, h], scores[b, h]) for b, h in each]
        self.share_value = [(shares[b, h], parts[b, :, 2, h], context[b, :, h]) for b, h in each]


class Encoder:
    """all-MiniLM-L6-v2: sentences as token numbers in, vectors of length one out."""

    def __init__(self, model: Model) -> None:
        self._tensors, self.config = model.tensors, model.config
        self._words = self._tensors["embeddings.word_embeddings.weight"]
        types = self._tensors["embeddings.token_type_embeddings.weight"]
        self._places = self._tensors["embeddings.position_embeddings.weight"] + types[0]
        self._norm = self._pair("embeddings.LayerNorm")
        self._layers = [self._layer(f"encoder.layer.{i}") for i in range(self.config.num_hidden_layers)]
        self._scale = 1 / math.sqrt(self.config.hidden_size // self.config.num_attention_heads)
        self._workspaces: dict[tuple[int, int], Workspace] = {}

    def _pair(self, name: str) -> Pair:
        return Pair(self._tensors[f"{name}.weight"], self._tensors[f"{name}.bias"])

    def _layer(self, name: str) -> Layer:
        parts = [self._pair(f"{name}.attention.self.{part}") for part in ("query", "key", "value")]
        qkv = Pair(np.concatenate([p.weight for p in parts]), np.concatenate([p.bias for p in parts]))
        others = ("attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense",
                  "output.LayerNorm")  # fmt: skip
        return Layer(qkv, *(self._pair(f"{name}.{other}") for other in others))

    def embed(self, sentences: Sequence[Sequence[int]], batch: int) -> Array:
        """The vectors of `sentences`, in their order. Sentences of like length share a batch."""
        vectors = np.empty((len(sentences), self.config.hidden_size), np.float32)
        order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            vectors[chosen] = self._embed_batch([sentences[i] for i in chosen])
        return vectors

    def _embed_batch(self, sentences: Sequence[Sequence[int]]) -> Array:
        shape = len(sentences), max(map(len, sentences))
        if shape not in self._workspaces:
            self._workspaces[shape] = Workspace(*shape, self.config, len(self._layers[0].up.bias))
        w = self._workspaces[shape]
        self._look_up(sentences, w)
        for layer in self._layers:
            self._attend(layer, w)
            self._feed_forward(layer, w)
        for b in range(shape[0]):
            gemm(w.mean[b : b + 1], w.sentences[b], w.pooled[b : b + 1])
        return np.asarray(w.pooled / np.linalg.norm(w.pooled, axis=1, keepdims=True))

    def _look_up(self, sentences: Sequence[Sequence[int]], w: Workspace) -> None:
        """hidden = norm(word + position + type); mask and weights of the mean come from the lengths."""
        tokens = np.zeros(w.mask.shape, np.intp)
        w.mask.fill(-np.inf)
        w.mean.fill(0)
        for b, sentence in enumerate(sentences):
            tokens[b, : len(sentence)] = sentence
            w.mask[b, : len(sentence)] = 0
            w.mean[b, : len(sentence)] = 1 / len(sentence)
        update = w.update.reshape(w.sentences.shape)
        np.take(self._words, tokens, axis=0, out=update)
        add(update, self._places[: tokens.shape[1]], update)
        layernorm(w.update, *self._norm, w.hidden, self.config.layer_norm_eps)

    def _attend(self, layer: Layer, w: Workspace) -> None:
        """hidden = norm(hidden + dense(softmax(q k^T / sqrt(d) + mask) v))"""
        linear(w.hidden, *layer.qkv, w.qkv)
        for query, key, scores in w.query_key:
            linear(query, key, w.no_bias, scores)
        for scores, shares, mask in w.scores_shares:
            softmax(scores, shares, mask, self._scale)
        for shares, value, context in w.share_value:
            gemm(shares, value, context)
        linear(w.context, *layer.attention_out, w.update)
        self._add_and_norm(layer.attention_norm, w)

    def _feed_forward(self, layer: Layer, w: Workspace) -> None:
        """hidden = norm(hidden + dense(gelu(dense(hidden))))"""
        linear_gelu(w.hidden, *layer.up, w.up)
        linear(w.up, *layer.down, w.update)
        self._add_and_norm(layer.norm, w)

    def _add_and_norm(self, norm: Pair, w: Workspace) -> None:
        add(w.update, w.hidden, w.update)
        layernorm(w.update, *norm, w.hidden, self.config.layer_norm_eps)
