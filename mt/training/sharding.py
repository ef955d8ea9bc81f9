"""How the ranks hold the model: each all of it (DDP), or together (FSDP2), for one that does not fit.

Of a model that they hold together each rank keeps a share of weights, gradients and optimizer state (DTensors). Before
a layer computes, its weights are gathered while the layer before it computes; its gradients are summed and shared out
while the next one's are computed. The embeddings and what else no layer holds are one more such unit.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from mt.config import TrainerConfig
from mt.model.transformer import Transformer
from mt.tensors import copy_weights
from mt.training.distributed import Group
from mt.training.loss import PairLoss


def sharing_ranks(trainer: TrainerConfig, group: Group) -> int:
    """Returns how many ranks hold a model together; 1: each holds all of it."""
    return group.world_size if trainer.shard_ranks is None else trainer.shard_ranks


def parallel(pair_loss: PairLoss, group: Group, device: torch.device, trainer: TrainerConfig) -> nn.Module:
    """Returns a module that does the same, and averages its gradients over the ranks in each backward pass.

    A model that ranks hold together is shared out in place, layer by layer, on its way to the device. Raises ValueError
    where the number of ranks is no multiple of trainer.shard_ranks.
    """
    ranks = sharing_ranks(trainer, group)
    if ranks == 1:
        return group.parallel(pair_loss, device, trainer.bf16_gradients)
    if group.world_size % ranks:
        raise ValueError(
            f"trainer.shard_ranks={ranks}: {group.world_size} ranks are no multiple of it: start another number of "
            "ranks, or set trainer.shard_ranks (null: all ranks together; 1: each rank holds the whole model)"
        )
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    sizes = {"copies": group.world_size // ranks, "shares": ranks}
    if sizes["copies"] == 1:
        del sizes["copies"]
    mesh = init_device_mesh(device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    policy = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16 if trainer.bf16_gradients else None)
    for module in (*pair_loss.model.encoder_layers, *pair_loss.model.decoder_layers, pair_loss):
        sharded = fully_shard(module, mesh=mesh, mp_policy=policy)
        if device.type == "cpu":
            sharded.set_force_sum_reduction_for_comms(True)  # gloo knows sums, not everywhere means
    return pair_loss


@contextmanager
def of_weights(
    model: Transformer, average: Mapping[str, Tensor] | None, sharded: bool, device: torch.device
) -> Iterator[Transformer]:
    """Gives a model that this rank holds all of, with the weights that count: the average where there is one.

    All ranks have to call it alike.
    """
    if sharded:
        sizes = model.source_embedding.weight.shape[0], model.target_embedding.weight.shape[0]
        with device:
            whole = Transformer(model.config, *sizes)
        whole.attend = model.attend
        weights = {name: weight.full_tensor() for name, weight in (average or model.weights()).items()}
        copy_weights(whole, weights, "the model that the ranks hold together")
        yield whole
        return
    weights = model.weights() if average else {}
    own = {name: weight.clone() for name, weight in weights.items()}
    for name, weight in weights.items():
        weight.copy_(average[name])
    yield model
    for name, weight in weights.items():
        weight.copy_(own[name])
