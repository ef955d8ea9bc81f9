#!/bin/sh
# Makes an environment for each peer below --work (default .bench), then times ours and the peers in turn:
#   scripts/bench_peers.sh --source train.en.gz --target train.de.gz --threads 2 --rounds 3
# Options are those of bench_rounds.py. A peer that cannot be installed stays in the table, with the reason.
# PYTHON: what the peers' environments are made with (3.11 for all three). MT_PYTHON: where mt is installed.
set -u
here=$(dirname "$0")
mt_python=${MT_PYTHON:-$here/../.venv/bin/python}
work=.bench
before=
for word in "$@"; do
    case $word in --work=*) work=${word#--work=} ;; esac
    [ "$before" = --work ] && work=$word
    before=$word
done
mkdir -p "$work" || exit 2

make_environment() { # name, requirements
    folder=$work/$1
    log=$work/$1.install.log
    shift
    [ -e "$folder/installed" ] && return
    rm -rf "$folder"
    echo "making $folder: $*" >&2
    { "${PYTHON:-$mt_python}" -m venv "$folder" && "$folder/bin/python" -m pip install "$@" && touch "$folder/installed"; } \
        >"$log" 2>&1 || echo "$folder: not installed, see $log" >&2
}

# the last of the first two lines are imported by them, but not among their requirements
make_environment joeynmt torch==2.13.0 joeynmt==2.3.0 importlib_metadata==10.2.0
make_environment eole torch==2.13.0 eole==0.6.4 aiohttp==3.14.5
make_environment marian torch==2.13.0 transformers==5.24.0 sentencepiece==0.2.3 sacrebleu==2.6.0
exec "$mt_python" "$here/bench_rounds.py" "$@"
