#!/usr/bin/env bash
# Prepares .venv-flink, .venv-pathway and .venv-bytewax, the environments of contenders whose packages do not go with
# those of Sluice. Without one of them the benchmark goes on without that contender.
# It is given the benchmark's own arguments: for a peer that --peers or --only leaves out there is nothing to prepare.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

only="" peers=""
words=" $* "
[[ $words =~ " --only"[\ =]([^\ ]+) ]] && only=",${BASH_REMATCH[1]},"
[[ $words =~ " --peers"[\ =]([^\ ]+) ]] && peers=",${BASH_REMATCH[1]},"

takes_part() { # PEER: whether something is measured that it takes part in
    [[ -n $peers && $peers != *",$1"* ]] && return 1
    case $1 in
    flink) [[ -z $only || -n $(tr , '\n' <<<"$only" | grep -vxE '|units|many|latency|first') ]] ;;
    *) [[ -z $only || $only == *,latency,* ]] ;;
    esac
}

prepare() { # PEER
    local environment=.venv-$1 requirements=benchmarks/$1-requirements.txt
    local stamp=$environment/.made-from wanted
    wanted=$({ echo "$PWD"; cat "$requirements"; } | cksum)
    [[ -x $environment/bin/python && -f $stamp && $(<"$stamp") == "$wanted" ]] && return
    echo "bench: making $environment from $requirements" >&2
    if "${PYTHON:-python3}" -m venv --clear "$environment" &&
        "$environment/bin/python" -m pip install --quiet --requirement "$requirements"; then
        echo "$wanted" >"$stamp"
    else
        rm -rf "$environment"
        echo "bench: warning: $1 could not be installed (the message is above); going on without it" >&2
    fi
}

for peer in flink pathway bytewax; do
    if takes_part "$peer"; then prepare "$peer"; fi
done
