#!/usr/bin/env bash
# Measures rltune on a machine with one GPU and no network that is lent for some minutes.
#
#   bash benchmarks/gpu_session.sh pack DIR             at home: wheels into DIR/base, 4 MB
#   bash benchmarks/gpu_session.sh collect FOLDER...    there: keep wheels and slices that were carried
#   bash benchmarks/gpu_session.sh measure [PART...]    there: all parts or some, 9 minutes at most
#
# Parts: torch vllm_lora tests vllm tests_lora tests_full growing ranks2 ranks4, the most telling first
# but for the last two, which need as many GPUs and are skipped without them. Each has
# a time limit of its own; one that fails or finds no time left does not lose the others. Their
# output (log.txt), one JSON file each and summary.txt lie in $OUT.
#
# The machine has Python 3.12, torch with CUDA, transformers, pytest and peft. What it lacks travels:
# DIR/base, and for vLLM folders of wheels and of slices named part.*, as large as a call may carry
# (a tar file of the unpacked package, compressed by xz and split; this script does not make them).
# A rehearsal without a GPU: SIZE="--model tiny --rows 4 --turns 2 --dtype float32".
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
kept=${KEPT:-/tmp/rltune-session} site=${KEPT:-/tmp/rltune-session}/site
python=${PYTHON:-python3}

pack() {
    "$python" -m pip download -q --no-deps --only-binary=:all: --python-version 3.12 \
        --implementation cp --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 \
        -d "$1/base" omegaconf==2.4.0 pydantic==2.14.4 pydantic_core==2.50.5 \
        annotated-types==0.8.0 typing-inspection==0.4.5 && ls "$1/base"
}

collect() {
    mkdir -p "$kept/wheels" "$kept/parts" &&
        for folder in "$@"; do
            find "$folder" -name '*.whl' -exec cp {} "$kept/wheels" \;
            find "$folder" -name 'part.*' -exec cp {} "$kept/parts" \;
        done
    ls "$kept/wheels" | wc -l
    ls -l "$kept/parts"
}

install() {
    "$python" -m pip install -q --no-index --no-deps --no-compile --upgrade --target "$site" \
        "$kept"/wheels/*.whl || return
    if ls "$kept"/parts/part.* >/dev/null 2>&1; then
        cat "$kept"/parts/part.* | xz -d -T0 | tar xf - -C "$site"
    fi
}

part() { # NAME SECONDS COMMAND...: within what is left of all the time; output goes to the log, too
    local name=$1 limit=$2 began=$SECONDS left=$((all_s - SECONDS))
    shift 2
    case " $wanted " in *" $name "* | "  ") ;; *) return ;; esac
    if [ "$left" -lt 30 ]; then
        echo "$name: no time left" | tee -a "$OUT/summary.txt"
        return
    fi
    [ "$limit" -gt "$left" ] && limit=$left
    echo "=== $name"
    timeout -k 5 "$limit" "$@" 2>&1 | tee -a "$OUT/log.txt" | tail -n 25
    echo "$name: exit ${PIPESTATUS[0]} after $((SECONDS - began)) s" | tee -a "$OUT/summary.txt"
}

ranks() { # N: some steps of one trial on N GPUs by NCCL; its gates beside those of one rank
    local gpus
    gpus=$("$python" -c "import torch; print(torch.cuda.device_count())")
    if [ "$gpus" -lt "$1" ]; then
        case " $wanted " in *" ranks$1 "* | "  ")
            echo "ranks$1: skipped, needs $1 GPUs and there are $gpus" | tee -a "$OUT/summary.txt" ;;
        esac
        return
    fi
    for n in 1 "$1"; do
        part "ranks$1" 60 "$python" benchmarks/trial.py --steps 3 --set gate.tasks=64 \
            --set "resources.gpus=$n"
    done
}

measure() {
    wanted=$* all_s=${SECONDS_IN_ALL:-540} OUT=${OUT:-$kept/out}
    mkdir -p "$OUT"
    export PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-8}
    [ -d "$site" ] || install || exit
    export PYTHONPATH=$here:$here/envs:$site
    cd "$here" || exit
    local tests=("$python" -m pytest -n 0 -q -m gpu -W default --show-capture=no)
    local static=tests/policy/test_policy_static_decode.py vllm=tests/contracts/test_contract_vllm.py
    local size
    read -r -a size <<<"${SIZE:-}"
    bench() { # ENGINE NAME SECONDS OPTION...
        part "$2" "$3" "$python" benchmarks/gpu.py "${size[@]}" --engines "$1" \
            --json "$OUT/$2.json" "${@:4}"
    }
    bench torch torch 120
    bench vllm vllm_lora 150 --lora 32 --steps 1
    part tests 60 "${tests[@]}" "$static"
    bench vllm vllm 150 --steps 1
    part tests_lora 80 "${tests[@]}" "$vllm" -k lora
    part tests_full 80 "${tests[@]}" "$vllm" -k full
    bench growing growing 120 --steps 1
    ranks 2
    ranks 4
    cat "$OUT/summary.txt"
}

case ${1:-} in
pack) pack "$2" ;;
collect) collect "${@:2}" ;;
measure) measure "${@:2}" ;;
*)
    sed -n '2,6p' "$0"
    exit 2
    ;;
esac
