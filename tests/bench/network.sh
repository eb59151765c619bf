#!/bin/bash
# network.sh GAU GAU_LAUNCH [ROUNDS]: how much of the exchange of gradients hides behind backward, and what a bf16 wire saves, on
# two hosts of one rank and one thread each at 1 Gbit/s (network namespaces; needs root). The model is W2's, 2.7 million parameters.
#
# A step is timed with and without the limit, in turn; what the limit adds is communication that was waited for. The same with
# two sequences of 8 tokens, where there is no backward to speak of, is the communication itself:
#   hidden = 1 - (step at 1 Gbit - step without limit) / (small step at 1 Gbit - small step without limit)
# Medians over all steps but the first three of each run.
gau=$1 launch=$2 rounds=${3:-3}
. "$(dirname "$0")/../network/hosts.sh"
trap 'hosts_down' EXIT
hosts_allowed || { echo "network namespaces need root, iproute2 and mpirun"; exit 77; }

cd "$HOSTS_DIR" || exit 1
# 4091 different characters, each many times.
characters=$(printf '\\U%x' $(seq 19968 24058))
for d in $(seq 30); do LC_ALL=C.UTF-8 printf "$d$characters\n"; done >text.txt
"$gau" prepare text.txt -o corpus.h5 --min-count 1 --quiet || exit 1
cat >config.toml <<END
[model]
layers = 4
hidden = 256
intermediate = 512
key_size = 64
[data]
corpus = "$HOSTS_DIR/corpus.h5"
batch = 64
[optim]
steps = 15
[train]
threads = 1
eval_every = 1000
save_every = 1000
END

# run NAME RATE SETTINGS...: appends the seconds of its steps to times.NAME.
run() {
  local name=$1 rate=$2 host settings=()
  shift 2
  for host in 1 2; do host_rate $host "$rate"; done
  for setting in "$@"; do settings+=(--set "$setting"); done
  rm -rf run "$HOSTS_DIR"/job*
  host_start 1 job "$launch" -n 2 --threads 1 --hostfile "$HOSTS_DIR/hostfile" --mpirun-args "$(hosts_mpirun_args)" -- \
    "$gau" train "$HOSTS_DIR/config.toml" --quiet --set train.output="$HOSTS_DIR/run" "${settings[@]}"
  until order_ended job; do sleep 0.1; done
  [ "$(order_code job)" = 0 ] || { cat job.err; exit 1; }
  tail -n +4 run/metrics.jsonl | grep -o '"seconds":[0-9.e-]*' | cut -d: -f2 >>"times.$name"
}
median() { sort -g "times.$1" | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }

hosts_up 2 off
small=(data.length=8 data.batch=2 train.shards=2 data.mask_prob=0.5 optim.steps=40)
for round in $(seq "$rounds"); do
  for rate in off 1gbit; do
    run "step-f32-$rate" $rate
    run "step-bf16-$rate" $rate train.wire=bf16
    run "small-f32-$rate" $rate "${small[@]}"
    run "small-bf16-$rate" $rate "${small[@]}" train.wire=bf16
  done
done
for wire in f32 bf16; do
  echo "$wire $(median step-$wire-off) $(median step-$wire-1gbit) $(median small-$wire-off) $(median small-$wire-1gbit)"
done | awk '
  { alone[$1] = $5 - $4; waited = $3 - $2
    printf "%s: step %.1f ms without limit, %.1f at 1 Gbit/s; exchange alone %.1f ms; waited for %.1f; hidden %.0f %%\n",
           $1, 1e3 * $2, 1e3 * $3, 1e3 * alone[$1], 1e3 * waited, 100 * (1 - waited / alone[$1]) }
  END { printf "bf16 / f32: %.2f\n", alone["bf16"] / alone["f32"] }'
