#!/bin/sh
# Checks and times the GPU's path on one GPU in under 8 minutes, one line of JSON a result. Needs no network, and no
# installed mt: PYTHON (default: python) must have torch and numpy; parts that need more say so and are skipped.
# Options go to gpu_check.py: --device cpu is a dry run at tiny sizes.
set -eu
cd "$(dirname "$0")/.."
export PYTHONPATH=.
exec timeout 475 "${PYTHON:-python}" scripts/gpu_check.py "$@"
