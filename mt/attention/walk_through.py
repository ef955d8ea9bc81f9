"""The numbers of the walk-through, step by step, made by the layers of mt/model and by nothing else."""

import copy
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mt.attention.view import View, view
from mt.config import ModelConfig
from mt.model.attention import attend_explicit, explicit_weights
from mt.model.dropout import Dropout
from mt.model.layout import Layout
from mt.model.recording import Recording
from mt.model.transformer import Transformer
from mt.tokenizer import BOS_ID, EOS_ID
from mt.translation.translator import Translator

SENTENCE = "我想吃酸菜鱼"
ENGLISH, BEGUN = "I love china", "我"  # what is translated, and what is written of it already
D_MODEL = 768
SEED = 1
HEAD_SIZES = (4, 16, 64, 256, 768)
_SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]


@dataclass(frozen=True)
class Steps:
    """Self-attention of n tokens with H heads of K = D / H numbers, step by step, in float64."""

    tokens: list[str]
    x: Tensor  # [n, D]
    query_weight: Tensor  # [D, D], and so are the other three; a matrix W maps x to x W^T
    key_weight: Tensor
    value_weight: Tensor
    output_weight: Tensor
    q: Tensor  # [n, H, K]
    k: Tensor
    v: Tensor
    products: Tensor  # [H, n, n]: Q K^T
    scores: Tensor  # [H, n, n]: divided by sqrt(K)
    weights: Tensor  # [H, n, n]: softmax of each row
    mixed: Tensor  # [n, H, K]: of each query and head the weighted sum of the values
    concatenated: Tensor  # [n, D]: the heads side by side
    output: Tensor  # [n, D]: after the output matrix
    of_layer: Tensor  # [n, D]: what the model's layer itself returns

    @property
    def undivided_weights(self) -> Tensor:
        """[H, n, n]: what softmax gives without the division."""
        return self.products.softmax(-1)


@dataclass(frozen=True)
class Sharpness:
    """What softmax makes of q and k of one size, whose numbers are drawn from a normal distribution.

    Medians of all rows: the mean of the gradient is that of a few rows where two keys fit equally well.
    """

    head_size: int
    entropy: float  # nats
    undivided_entropy: float
    gradient: float  # see gradient_size
    undivided_gradient: float


@dataclass(frozen=True)
class Translating:
    """A model in the middle of a translation: what it looks at, and the shapes on the way."""

    name: str
    view: View
    decoder_input: tuple[int, ...]  # [T, D]
    memory: tuple[int, ...]  # [S, D]
    query: tuple[int, ...]  # [T, H, K], of cross-attention
    key: tuple[int, ...]  # [S, H, K]
    value: tuple[int, ...]
    difference: float  # the largest, of the decoder's results by the fast kernel and with the weights written down

    @property
    def layer(self) -> int:
        """The layer, from 0, whose cross-attention is shown: the last but one, which aligns best, or the only one."""
        return max(len(self.view.cross.weights) - 2, 0)

    @property
    def next_row(self) -> Tensor:
        """[H, S]: where each head of that layer looks for the next token."""
        return self.view.cross.weights[self.layer, :, -1]


@dataclass(frozen=True)
class WalkThrough:
    """All numbers. models: random weights first, then the trained ones where a run was given."""

    one_head: Steps
    three_heads: Steps
    sharpness: list[Sharpness]
    models: list[Translating]
    written: list[Translating]  # SENTENCE as a translation, in the same models; empty unless these write Chinese


def walk_through(translator: Translator | None) -> WalkThrough:
    """Returns the numbers, with those of a trained model beside those of random weights where there is one.

    It must translate from English to Chinese, which is not looked into. Nothing random but the fixed seed is drawn.
    """
    steps = [self_attention(heads) for heads in (1, 3)]
    sharp = [sharpness(size) for size in HEAD_SIZES]
    if translator is None:
        names = [*_SPECIAL, *ENGLISH.split()], [*_SPECIAL, "我", "爱", "中国", "想", "吃", "鱼"]
        config = ModelConfig(D_MODEL, D_MODEL, 3, 2, 2, tying="none")
        model = _random(config, len(names[0]), len(names[1]))
        naming = [lambda ids, own=own: [own[i] for i in ids] for own in names]
        return WalkThrough(*steps, sharp, [_translating("random", model, [4, 5, 6], [4], *naming)], [])
    trained, sides = copy.deepcopy(translator.models[0]).cpu().double(), translator.tokenizers
    random = _random(trained.config, sides.source.size, sides.target.size)
    models = {"random": random, "trained": trained}
    naming = [sides.source.pieces, sides.target.pieces]
    english, begun = translator.sources([ENGLISH])[0], sides.target.encode([BEGUN])[0]
    sentence = sides.target.encode([SENTENCE])[0]
    return WalkThrough(
        *steps,
        sharp,
        [_translating(name, model, english, begun, *naming) for name, model in models.items()],
        [_translating(name, model, english, sentence, *naming) for name, model in models.items()],
    )


@torch.inference_mode()
def self_attention(n_heads: int) -> Steps:
    """Returns the steps for SENTENCE, a token a character. The same random weights for any number of heads."""
    model = _random(ModelConfig(D_MODEL, D_MODEL, n_heads, 1, 1, norm_position="post", tying="none"), 10, 10)
    layer, layout = model.encoder_layers[0].self_attention, Layout.from_lengths([len(SENTENCE)])
    ids = torch.arange(len(_SPECIAL), len(_SPECIAL) + len(SENTENCE))
    x = model.source_embedding(ids, layout.positions, layout.longest)
    q, k, v = layer.project(x, None)
    products = q.transpose(0, 1) @ k.permute(1, 2, 0)  # [H, n, K] @ [H, K, n]
    weights = explicit_weights(q, k, layout, layout, False)[0]
    mixed = attend_explicit(q, k, v, layout, layout, False, Dropout(0.0))
    concatenated = mixed.flatten(1)
    return Steps(
        list(SENTENCE),
        x,
        *layer.query_key_value.weight.chunk(3),
        layer.output.weight,
        q,
        k,
        v,
        products,
        products / math.sqrt(q.shape[-1]),
        weights,
        mixed,
        concatenated,
        layer.output(concatenated),
        layer(x, layout, None, False, attend_explicit),
    )


@torch.inference_mode()
def sharpness(head_size: int) -> Sharpness:
    """Returns how sharp softmax is over six keys, of 500 draws of six queries."""
    draws, tokens = 500, len(SENTENCE)
    layout = Layout.from_lengths([tokens] * draws)
    generator = torch.Generator().manual_seed(SEED)
    shape = (draws * tokens, 1, head_size)
    q, k = (torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(2))
    divided = explicit_weights(q, k, layout, layout, False)
    undivided = explicit_weights(q * math.sqrt(head_size), k, layout, layout, False)  # takes the division back
    values = [float(size(weights).median()) for size in (entropy, gradient_size) for weights in (divided, undivided)]
    return Sharpness(head_size, *values)


def entropy(weights: Tensor) -> Tensor:
    """Returns the entropy in nats of each row [..., n]: log n where all weights are equal, 0 where one has all."""
    return -torch.xlogy(weights, weights).sum(-1)


def gradient_size(weights: Tensor) -> Tensor:
    """Returns for each row [..., n] of softmax how much it passes back: the norm of d weights / d scores.

    d w_i / d s_j = w_i (1[i = j] - w_j), which is 0 everywhere where one weight is 1.
    """
    derivatives = torch.diag_embed(weights) - weights[..., :, None] * weights[..., None, :]
    return torch.linalg.matrix_norm(derivatives)


def _random(config: ModelConfig, source_size: int, target_size: int) -> Transformer:
    """Returns a model with the weights that a training would begin with, in float64, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return Transformer(config, source_size, target_size).double().eval()


class _Shapes(Recording):
    """Keeps also the shapes of queries, keys and values of the last layer: of a decoder, of its cross-attention."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, *rest: object) -> Tensor:
        self.shapes = tuple(q.shape), tuple(k.shape), tuple(v.shape)
        return super().__call__(q, k, v, *rest)


@torch.inference_mode()
def _translating(name: str, model: Transformer, source: list[int], target: list[int], *naming: object) -> Translating:
    seen = view(model, source, target, False, *naming)
    source_layout, target_layout = Layout.from_lengths([len(source) + 1]), Layout.from_lengths([len(target) + 1])
    memory = model.encode(torch.tensor([*source, EOS_ID]), source_layout)
    read, shapes = torch.tensor([BOS_ID, *target]), _Shapes()
    fast = model.decode(read, target_layout, memory, source_layout)
    recorded = model.decode(read, target_layout, memory, source_layout, shapes)
    difference = float((fast - recorded).abs().max())
    x = model.target_embedding(read, target_layout.positions, target_layout.longest)
    return Translating(name, seen, tuple(x.shape), tuple(memory.shape), *shapes.shapes, difference)
