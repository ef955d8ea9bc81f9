"""The encoder-decoder Transformer (Attention Is All You Need) on packed streams of tokens."""

import math
from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mt.config import ModelConfig
from mt.model.attention import Attend, attend_grouped, attend_padded
from mt.model.dropout import Dropout, repeatable
from mt.model.embedding import Embedding, Rotation
from mt.model.layers import CrossAttention, DecoderLayer, EncoderLayer, SelfAttention, make_norm
from mt.model.layout import Layout
from mt.model.state import DecoderState
from mt.tensors import own_rows


class Transformer(nn.Module):
    """Maps source and target streams to hidden vectors, whose products with the output table are the logits.

    Initialisation (F_in, F_out: a matrix's sizes; fused Q, K, V count as separate matrices):

    | parameter                              | distribution                                      |
    |----------------------------------------|---------------------------------------------------|
    | embeddings, output table               | normal, deviation 1/sqrt(d_model)                 |
    | linear maps                            | uniform, bound sqrt(6 / (F_in + F_out)) (Xavier)  |
    | pre-norm: last map of each sublayer    | the same, divided by sqrt(sublayers of its stack) |
    | biases                                 | 0                                                 |
    | norms                                  | weight 1, bias 0                                  |
    """

    def __init__(self, config: ModelConfig, source_vocabulary_size: int, target_vocabulary_size: int) -> None:
        super().__init__()
        self.config = config
        self.source_embedding = Embedding(source_vocabulary_size, config.d_model, config.positions)
        if config.tying == "three_way":
            if source_vocabulary_size != target_vocabulary_size:
                raise ValueError(
                    f"model.tying=three_way needs one vocabulary; source has {source_vocabulary_size} pieces and "
                    f"target {target_vocabulary_size}: set model.tying=decoder"
                )
            self.target_embedding = self.source_embedding
        else:
            self.target_embedding = Embedding(target_vocabulary_size, config.d_model, config.positions)
        if config.tying == "none":
            self.output_table = nn.Parameter(torch.empty(target_vocabulary_size, config.d_model))
        else:
            self.output_table = self.target_embedding.weight  # [V_tgt, D]
        self.output_bias = nn.Parameter(torch.zeros(target_vocabulary_size)) if config.output_bias else None
        self.dropout = Dropout(config.dropout)
        self.encoder_layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        pre = config.norm_position == "pre"  # post-norm layers end in a norm already
        self.encoder_norm = make_norm(config) if pre else nn.Identity()
        self.decoder_norm = make_norm(config) if pre else nn.Identity()
        self.unwritten: list[int] = []  # ids that no output holds
        self.attend: Attend | None = None  # None: grouped on a CPU, padded elsewhere; the trainer sets the GPU's kernel
        self.checkpoint_activations = False  # whether layers keep nothing and are computed again in the backward pass
        self.initialise()

    @property
    def device(self) -> torch.device:
        return self.output_table.device

    def initialise(self) -> None:
        """Fills all parameters from torch's generator, as the class's table says."""
        for table in {
            id(t): t for t in (self.source_embedding.weight, self.target_embedding.weight, self.output_table)
        }.values():
            nn.init.normal_(table, std=self.config.d_model**-0.5)
        if self.output_bias is not None:
            nn.init.zeros_(self.output_bias)
        for name, module in self.named_modules():
            if not isinstance(module, nn.Linear):
                continue
            nn.init.zeros_(module.bias)
            fused = {"query_key_value": 3, "key_value": 2}.get(name.rsplit(".", 1)[-1], 1)
            for part in module.weight.data.chunk(fused):
                nn.init.xavier_uniform_(part)
            if self.config.norm_position == "pre" and name.endswith(".output"):
                encoder = name.startswith("encoder_layers")
                sublayers = 2 * self.config.encoder_layers if encoder else 3 * self.config.decoder_layers
                module.weight.data.div_(math.sqrt(sublayers))

    def leave_out_key_biases(self) -> None:
        """Clears the gradients of the keys' biases.

        Unless keys are rotated, such a bias adds the same to all scores of a query, which softmax ignores: its
        gradient is rounding noise, and Adam would make whole steps of it.
        """
        size = self.config.d_model
        for module in self.modules():
            if isinstance(module, CrossAttention) and module.key_value.bias.grad is not None:
                own_rows(module.key_value.bias.grad, 0, size)[0].zero_()
            elif isinstance(module, SelfAttention) and self.config.positions != "rotary":
                if module.query_key_value.bias.grad is not None:
                    own_rows(module.query_key_value.bias.grad, size, 2 * size)[0].zero_()

    def _attend(self) -> Attend:
        if self.attend is not None:
            return self.attend
        return attend_grouped if self.device.type == "cpu" else attend_padded

    def _through(self, layer: nn.Module, *inputs: object) -> Tensor:
        if not self.checkpoint_activations or not torch.is_grad_enabled():
            return layer(*inputs)
        return checkpoint(layer, *inputs, use_reentrant=False, context_fn=lambda: repeatable(layer))

    def _rotation(self, positions: Tensor, dtype: torch.dtype) -> Rotation | None:
        if self.config.positions != "rotary":
            return None
        return Rotation.at(positions, self.config.d_model // self.config.n_heads, dtype)

    def encode(self, source: Tensor, layout: Layout, attend: Attend | None = None) -> Tensor:
        """Returns the memory [N_src, D] of source tokens [N_src].

        attend: in place of the device's own, to see or change what attention does.
        """
        x = self.source_embedding(source, layout.positions, layout.longest)
        x, rotation = self.dropout(x), self._rotation(layout.positions, x.dtype)
        for layer in self.encoder_layers:
            x = self._through(layer, x, layout, rotation, attend or self._attend())
        return self.encoder_norm(x)

    def decode(
        self, target: Tensor, layout: Layout, memory: Tensor, memory_layout: Layout, attend: Attend | None = None
    ) -> Tensor:
        """Returns hidden vectors [N_tgt, D]: row i has seen its sentence's target tokens up to i and all memory.

        attend: as in encode.
        """
        x = self.target_embedding(target, layout.positions, layout.longest)
        x, rotation = self.dropout(x), self._rotation(layout.positions, x.dtype)
        for layer in self.decoder_layers:
            x = self._through(layer, x, layout, rotation, memory, memory_layout, attend or self._attend())
        return self.decoder_norm(x)

    def forward(self, source: Tensor, source_layout: Layout, target: Tensor, target_layout: Layout) -> Tensor:
        """Returns hidden vectors [N_tgt, D] for target inputs [N_tgt] (each sentence begins with <s>)."""
        return self.decode(target, target_layout, self.encode(source, source_layout), source_layout)

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns [N, V_tgt] float32 (float64 for a float64 model)."""
        logits = nn.functional.linear(hidden, self.output_table, self.output_bias)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def factors(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Returns [N, D'] and [V_tgt, D'], whose products are the logits: a bias is one more column beside ones."""
        if self.output_bias is None:
            return hidden, self.output_table
        with_ones = torch.cat([hidden, torch.ones_like(hidden[:, :1])], dim=1)
        return with_ones, torch.cat([self.output_table, self.output_bias[:, None]], dim=1)

    @torch.inference_mode()
    def start(self, memory: Tensor, layout: Layout) -> DecoderState:
        """Returns the state before the first step: a row for each of the B sentences of memory [N_src, D]."""
        memories = []
        for layer in self.decoder_layers:
            keys, values = (layout.pad(part).transpose(1, 2) for part in layer.cross_attention.project_memory(memory))
            memories.append((keys.contiguous(), values.contiguous()))  # [B, H, S, K]
        return DecoderState(memories, layout.mask)

    @torch.inference_mode()
    def step(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """Returns logits [R, V_tgt] float32 of the next token after tokens [R], which join the state."""
        bias = state.grow()
        positions = tokens.new_full((1,), state.length - 1)  # the same for all rows
        x = self.target_embedding(tokens, positions, state.length)  # [R, D]
        rotation = self._rotation(positions, x.dtype)
        for layer, (keys, values), memory in zip(self.decoder_layers, state.own, state.memory, strict=True):
            own = keys[:, : state.used], values[:, : state.used]
            x = layer.step(x, rotation, state.grid, own, bias, memory, state.memory_bias)
        logits = self.logits(self.decoder_norm(x))
        if self.unwritten:
            logits[:, self.unwritten] = -torch.inf
        return logits

    def weights(self) -> "OrderedDict[str, Tensor]":
        """Returns the state dict with tied tables once, under the name of the first."""
        seen: set[int] = set()
        unique = OrderedDict()
        for name, parameter in self.named_parameters(remove_duplicate=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                unique[name] = parameter.detach()
        return unique

    def names(self) -> dict[str, str]:
        """Returns for each name of the state dict the one that `weights` has for the same tensor."""
        first: dict[int, str] = {}
        return {n: first.setdefault(id(p), n) for n, p in self.named_parameters(remove_duplicate=False)}
