#!/bin/bash
#SBATCH --job-name=big
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@180
# SIGTERM, three minutes before the end or before another job takes the hosts, is passed on to each torchrun: the ranks
# save and stop together, and the job is queued again. When a host fails, SLURM itself queues the job again.
FIRST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
trap 'stopped=yes; kill -TERM $ranks' TERM
srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node 8 --max-restarts 20 \
  --rdzv-backend c10d --rdzv-endpoint "$FIRST:29400" --rdzv-id "$SLURM_JOB_ID" \
  -m mt train experiment=wmt14_en_de_big run_dir=/shared/runs/big data.cache_dir=/shared/cache \
  trainer.save_every_minutes=5 &
ranks=$!
wait $ranks
code=$?
if [ "$stopped" ]; then
  wait $ranks
  scontrol requeue "$SLURM_JOB_ID"
fi
exit $code
