#!/bin/bash
# network.sh GAU GAU_LAUNCH WORKLOAD [ROUNDS [SETTING...]]: how much of the exchange of gradients hides behind backward, and what
# a bf16 wire saves, on two hosts of one rank and one thread each at 1 Gbit/s (network namespaces; needs root). WORKLOAD is W1 or
# W2 (docs/scaling.md), which the two hosts share; settings are as for gau train --set, say train.shards=2; WIRES="f32" leaves
# bf16 out.
#
# A step is timed with and without the limit, in turn; what the limit adds is communication that was waited for. The same with
# two sequences of 8 tokens, where there is no backward to speak of, is the communication itself:
#   hidden = 1 - (step at 1 Gbit - step without limit) / (small step at 1 Gbit - small step without limit)
# Medians over all steps but the first two of each run. A second figure takes what the first rank itself says that it waited
# after its backward, in the place of the difference of steps: it leaves out what moving data costs a busy processor, and is less
# disturbed by other programs.
gau=$1 launch=$2 workload=$3 rounds=${4:-3}
shift $(($# < 4 ? $# : 4))
settings=("$@")
case $workload in
  W1) layers=6 hidden=768 intermediate=1536 key_size=128 batch=128 characters=11995 steps=6 ;;
  W2) layers=4 hidden=256 intermediate=512 key_size=64 batch=64 characters=4091 steps=14 ;;
  *) echo "network.sh GAU GAU_LAUNCH W1|W2 [ROUNDS [SETTING...]]"; exit 64 ;;
esac
. "$(dirname "$0")/../network/hosts.sh"
trap 'hosts_down' EXIT
hosts_allowed || { echo "network namespaces need root, iproute2 and mpirun"; exit 77; }

cd "$HOSTS_DIR" || exit 1
alphabet=$(printf '\\U%x' $(seq 19968 $((19967 + characters))))
for d in $(seq 30); do LC_ALL=C.UTF-8 printf "$d$alphabet\n"; done >text.txt
"$gau" prepare text.txt -o corpus.h5 --min-count 1 --quiet || exit 1
cat >config.toml <<END
[model]
layers = $layers
hidden = $hidden
intermediate = $intermediate
key_size = $key_size
[data]
corpus = "$HOSTS_DIR/corpus.h5"
batch = $batch
[optim]
steps = $steps
[train]
threads = 1
eval_every = 1000
save_every = 1000
END

# run NAME RATE SETTINGS...: appends the figures of its steps to seconds.NAME and waited.NAME.
run() {
  local name=$1 rate=$2 host figure words=()
  shift 2
  for host in 1 2; do host_rate $host "$rate"; done
  for setting in "$@"; do words+=(--set "$setting"); done
  rm -rf run "$HOSTS_DIR"/job*
  host_start 1 job "$launch" -n 2 --threads 1 --hostfile "$HOSTS_DIR/hostfile" --mpirun-args "$(hosts_mpirun_args)" -- \
    "$gau" train "$HOSTS_DIR/config.toml" --quiet --set train.output="$HOSTS_DIR/run" "${words[@]}"
  until order_ended job; do sleep 0.1; done
  [ "$(order_code job)" = 0 ] || { cat job.err; exit 1; }
  for figure in seconds waited; do
    tail -n +3 run/metrics.jsonl | grep -o "\"$figure\":[0-9.e-]*" | cut -d: -f2 >>"$figure.$name"
  done
}
median() { sort -g "$1" | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }

hosts_up 2 off
small=("${settings[@]}" data.length=8 data.batch=2 train.shards=2 data.mask_prob=0.5 optim.steps=20)
for round in $(seq "$rounds"); do
  for wire in ${WIRES:-f32 bf16}; do
    for rate in off 1gbit; do
      run "step-$wire-$rate" $rate "${settings[@]}" train.wire=$wire
      run "small-$wire-$rate" $rate "${small[@]}" train.wire=$wire
    done
  done
done
echo "$workload ${settings[*]}, $rounds rounds:"
for wire in ${WIRES:-f32 bf16}; do
  echo "$wire" $(for name in seconds.step seconds.small waited.step; do
    for rate in off 1gbit; do median "$name-$wire-$rate"; done
  done)
done | awk '
  { alone[$1] = $5 - $4; waited = $3 - $2; said = $7 - $6
    printf "%s: step %.1f ms without limit, %.1f at 1 Gbit/s; exchange alone %.1f ms; waited for %.1f, hidden %.0f %% " \
           "(by the rank itself %.1f, %.0f %%)\n",
           $1, 1e3 * $2, 1e3 * $3, 1e3 * alone[$1], 1e3 * waited, 100 * (1 - waited / alone[$1]), 1e3 * said,
           100 * (1 - said / alone[$1]) }
  END { if (alone["bf16"] && alone["f32"]) printf "bf16 / f32: %.2f\n", alone["bf16"] / alone["f32"] }'
