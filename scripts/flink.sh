#!/usr/bin/env bash
# Prepares .venv-flink, the environment of the Flink contender. Without it the benchmark goes on without Flink.
# It is given the benchmark's own arguments: where --peers leaves Flink out there is nothing to prepare.
set -uo pipefail
[[ " $* " == *" --peers"* && " $* " != *flink* ]] && exit 0
[[ " $* " == *" --only units "* ]] && exit 0
cd "$(dirname "${BASH_SOURCE[0]}")/.."
requirements=benchmarks/flink-requirements.txt
stamp=.venv-flink/.made-from

made_from() { { echo "$PWD"; cat "$requirements"; } | cksum; }

if [[ -x .venv-flink/bin/python && -f $stamp && $(<"$stamp") == "$(made_from)" ]]; then
    exit 0
fi
echo "bench: making .venv-flink from $requirements" >&2
if "${PYTHON:-python3}" -m venv --clear .venv-flink &&
    .venv-flink/bin/python -m pip install --quiet --requirement "$requirements"; then
    made_from >"$stamp"
else
    rm -rf .venv-flink
    echo "bench: warning: Flink could not be installed (the message is above); going on without it" >&2
fi
