"""The Transformer in plain NumPy, float64: one sentence, one head and one token at a time, sharing no code with mt.

Slow, and simple enough to check against the papers: Attention Is All You Need; RoFormer for rotary positions; GLU
Variants Improve Transformer for SwiGLU. Weights are taken by name from a model's state dict.
"""

import math

import numpy as np

NORM_EPSILON = 1e-6


def linear(weights, name, x):
    return weights[f"{name}.weight"] @ x + weights[f"{name}.bias"]


def norm(weights, name, kind, x):
    if kind == "rms_norm":
        return x / math.sqrt(np.mean(x**2) + NORM_EPSILON) * weights[f"{name}.weight"]
    centred = x - x.mean()
    return centred / math.sqrt(np.mean(centred**2) + NORM_EPSILON) * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def sinusoid(position, d_model, paper=False):
    """Sines in the first half, cosines in the second. paper: its rates, otherwise those that end at 1/10000."""
    half = d_model // 2
    angles = [position / 10_000 ** (i / (half if paper else half - 1)) for i in range(half)]
    return np.array([math.sin(a) for a in angles] + [math.cos(a) for a in angles])


def turned(x, position):
    """Rotary positions of one head's vector: pairs (i, i + K/2) turned by position / 10000^(2i/K)."""
    half = len(x) // 2
    out = np.empty_like(x)
    for i in range(half):
        angle = position / 10_000 ** (i / half)
        out[i] = x[i] * math.cos(angle) - x[i + half] * math.sin(angle)
        out[i + half] = x[i] * math.sin(angle) + x[i + half] * math.cos(angle)
    return out


def attention(queries, keys, values, causal, rotary):
    """Lists of [D-per-head] vectors of one head -> the mixed values, one a query."""
    if rotary:
        queries = [turned(q, i) for i, q in enumerate(queries)]
        keys = [turned(k, i) for i, k in enumerate(keys)]
    out = []
    for i, q in enumerate(queries):
        visible = range(i + 1) if causal else range(len(keys))
        powers = [math.exp(q @ keys[j] / math.sqrt(len(q))) for j in visible]
        out.append(sum(power / sum(powers) * values[j] for power, j in zip(powers, visible, strict=True)))
    return out


def heads(q, k, v, n_heads, causal, rotary):
    """Lists of [D] vectors, cut into heads, mixed, and put side by side again."""
    size = len(q[0]) // n_heads
    mixed = []
    for h in range(n_heads):
        part = slice(h * size, (h + 1) * size)
        mixed.append(attention([x[part] for x in q], [x[part] for x in k], [x[part] for x in v], causal, rotary))
    return [np.concatenate(row) for row in zip(*mixed, strict=True)]


def self_attention(weights, name, config, x, causal):
    q, k, v = zip(*(np.split(linear(weights, f"{name}.query_key_value", row), 3) for row in x), strict=True)
    mixed = heads(q, k, v, config.n_heads, causal, config.positions == "rotary")
    return [linear(weights, f"{name}.output", row) for row in mixed]


def cross_attention(weights, name, config, x, memory):
    q = [linear(weights, f"{name}.query", row) for row in x]
    k, v = zip(*(np.split(linear(weights, f"{name}.key_value", row), 2) for row in memory), strict=True)
    return [linear(weights, f"{name}.output", row) for row in heads(q, k, v, config.n_heads, False, False)]


def feed_forward(weights, name, config, row):
    inner = linear(weights, f"{name}.inner", row)
    if config.activation == "relu":
        inner = np.array([max(0.0, z) for z in inner])
    elif config.activation == "gelu":
        inner = np.array([z * 0.5 * (1 + math.erf(z / math.sqrt(2))) for z in inner])
    elif config.activation == "silu":
        inner = np.array([z / (1 + math.exp(-z)) for z in inner])
    else:
        gate, value = np.split(inner, 2)
        inner = gate / (1 + np.exp(-gate)) * value
    return linear(weights, f"{name}.output", inner)


def residual(weights, name, config, x, sublayer):
    """x + sublayer(norm(x)) or norm(x + sublayer(x)), for a list of vectors."""
    if config.norm_position == "pre":
        change = sublayer([norm(weights, name, config.norm, row) for row in x])
        return [row + c for row, c in zip(x, change, strict=True)]
    return [norm(weights, name, config.norm, row + c) for row, c in zip(x, sublayer(x), strict=True)]


def embed(table, tokens, config):
    x = [table[t] * math.sqrt(config.d_model) for t in tokens]
    if config.positions != "rotary":
        paper = config.positions == "sinusoidal_paper"
        x = [row + sinusoid(i, config.d_model, paper) for i, row in enumerate(x)]
    return x


def log_probabilities(weights, config, source, target):
    """Returns [T, V] for one sentence: row i follows target[: i + 1]. weights: NumPy arrays by name."""
    x = embed(weights["source_embedding.weight"], source, config)
    for n in range(config.encoder_layers):
        at = f"encoder_layers.{n}"
        x = residual(
            weights, f"{at}.around_self.norm", config, x,
            lambda h, at=at: self_attention(weights, f"{at}.self_attention", config, h, False),
        )  # fmt: skip
        x = residual(
            weights, f"{at}.around_feed_forward.norm", config, x,
            lambda h, at=at: [feed_forward(weights, f"{at}.feed_forward", config, row) for row in h],
        )  # fmt: skip
    pre = config.norm_position == "pre"
    memory = [norm(weights, "encoder_norm", config.norm, row) for row in x] if pre else x
    x = embed(weights["target_embedding.weight"], target, config)
    for n in range(config.decoder_layers):
        at = f"decoder_layers.{n}"
        x = residual(
            weights, f"{at}.around_self.norm", config, x,
            lambda h, at=at: self_attention(weights, f"{at}.self_attention", config, h, True),
        )  # fmt: skip
        x = residual(
            weights, f"{at}.around_cross.norm", config, x,
            lambda h, at=at: cross_attention(weights, f"{at}.cross_attention", config, h, memory),
        )  # fmt: skip
        x = residual(
            weights, f"{at}.around_feed_forward.norm", config, x,
            lambda h, at=at: [feed_forward(weights, f"{at}.feed_forward", config, row) for row in h],
        )  # fmt: skip
    x = [norm(weights, "decoder_norm", config.norm, row) for row in x] if pre else x
    logits = np.array([weights["output_table"] @ row for row in x]) + weights.get("output_bias", 0)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))
