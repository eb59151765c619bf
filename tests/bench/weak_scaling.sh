#!/bin/bash
# weak_scaling.sh GAU GAU_LAUNCH [ROUNDS]: steps of W2 (docs/scaling.md) with one thread a rank, beside what `gau plan` forecasts
# from rates that it measures itself: one rank with the workload's batch, with twice and four times that, and with one shard; two
# and four ranks with the workload's batch each. On one machine: ranks share its memory, and no network is between them. Where there
# are fewer cores than ranks, these take turns, and the forecast is multiplied by ranks / cores. Medians over all steps but the
# first three of each run. ONLY="2x64 4x64" runs some of the jobs.
gau=$1 launch=$2 rounds=${3:-3}
[ -x "$gau" ] && [ -x "$launch" ] || { echo "weak_scaling.sh GAU GAU_LAUNCH [ROUNDS]"; exit 64; }
directory=$(mktemp -d "${TMPDIR:-/tmp}/gau-weak-XXXXXX")
trap 'rm -rf "$directory"' EXIT
cd "$directory" || exit 1

# 4091 different characters, each many times.
alphabet=$(printf '\\U%x' $(seq 19968 24058))
for d in $(seq 30); do LC_ALL=C.UTF-8 printf "$d$alphabet\n"; done >text.txt
"$gau" prepare text.txt -o corpus.h5 --min-count 1 --quiet || exit 1
cat >config.toml <<END
[model]
layers = 4
hidden = 256
intermediate = 512
key_size = 64
[data]
corpus = "corpus.h5"
batch = 64
[optim]
steps = 15
[train]
threads = 1
eval_every = 1000
save_every = 1000
END

# name, ranks, settings
jobs=("1x64 1" "1x128 1 data.batch=128" "1x256 1 data.batch=256" "2x64 2 data.batch=128" "4x64 4 data.batch=256"
  "1x64,1-shard 1 train.shards=1" "1x128,2-shards 1 data.batch=128 train.shards=2" "2x64,2-shards 2 data.batch=128 train.shards=2")

each_job() {
  local job words setting
  for job in "${jobs[@]}"; do
    read -ra words <<<"$job"
    [[ -z ${ONLY:-} || " $ONLY " = *" ${words[0]} "* ]] || continue
    settings=()
    for setting in "${words[@]:2}"; do settings+=(--set "$setting"); done
    "$1" "${words[0]}" "${words[1]}"
  done
}
train() {
  rm -rf run
  "$launch" -n "$2" --threads 1 -- "$gau" train config.toml --quiet --set train.output=run "${settings[@]}" >job.out 2>job.err ||
    { cat job.err; exit 1; }
  tail -n +4 run/metrics.jsonl | grep -o '"seconds":[0-9.e-]*' | cut -d: -f2 >>"seconds.$1"
}
# The bandwidth stands for messages through memory.
forecast() {
  OMP_NUM_THREADS=1 "$gau" plan config.toml --json --ranks "$2" --bandwidth 40 --latency 5 "${settings[@]}" |
    grep -o '"step_seconds":[0-9.e-]*' | cut -d: -f2 |
    awk -v turns="$(($2 > $(nproc) ? $2 : $(nproc)))" -v cores="$(nproc)" '{ print $1 * turns / cores }' >>"forecast.$1"
}
report() {
  local measured forecast
  measured=$(median "seconds.$1") forecast=$(median "forecast.$1")
  awk -v name="$1" -v m="$measured" -v best="$(sort -g "seconds.$1" | head -1)" -v f="$forecast" \
    'BEGIN { printf "%-18s %8.3f s, best %.3f s, forecast %.3f s, forecast / measured %.2f\n", name, m, best, f, f / m }'
}
median() { sort -g "$1" | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }

for round in $(seq "$rounds"); do
  each_job train
  each_job forecast
done
each_job report
