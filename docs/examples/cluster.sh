#!/bin/bash
# A plain cluster: the same script on every host. FIRST is the host that keeps the rendezvous; run_dir and data.cache_dir
# are on a disk that all hosts see. Whatever ends torchrun but success is followed by another try, which goes on.
FIRST=${FIRST:?the name of the first host}
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
for try in $(seq 100); do
  torchrun --nnodes 2:4 --nproc-per-node 8 --max-restarts 20 \
    --rdzv-backend c10d --rdzv-endpoint "$FIRST:29400" --rdzv-id big \
    -m mt train experiment=wmt14_en_de_big run_dir=/shared/runs/big data.cache_dir=/shared/cache \
    trainer.save_every_minutes=5 && exit
  sleep 10
done
exit 1
