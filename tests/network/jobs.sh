#!/bin/bash
# jobs.sh CASE GAU GAU_LAUNCH: training on two hosts (hosts.sh), one rank each, 1 Gbit/s between them, under gau-launch.
#   equal   the digest is that of one process
#   cut     a cable is cut: an end with 76 within the timeout and 10 s, and nothing left on either host
#   mended  a cable is cut for 3 s: the digest is that of a run that was left alone
#   crash   all processes of a host are killed: an end within 5 s and the grace, the host named, nothing left
# Exit code 77, which ctest takes for skipped, where the machine allows no network namespaces.
case=$1 gau=$2 launch=$3
. "$(dirname "$0")/hosts.sh"
trap 'hosts_down' EXIT
hosts_allowed || { echo "skipped: network namespaces need root, iproute2 and mpirun"; exit 77; }

timeout=8
grace=5
fail() {
  echo "FAILED: $*"
  tail -n 30 "$HOSTS_DIR"/job.out "$HOSTS_DIR"/job.err 2>/dev/null
  exit 1
}

cd "$HOSTS_DIR" || exit 1
for i in $(seq 300); do echo "line $i of a text that nobody has to read, with $((i * 7919 % 1000)) words to come"; done >text.txt
"$gau" prepare text.txt -o corpus.h5 --valid 0.1 --test 0.1 --quiet || fail "no corpus"
cat >config.toml <<END
[model]
layers = 2
hidden = 32
intermediate = 48
key_size = 16
[data]
corpus = "$HOSTS_DIR/corpus.h5"
length = 32
batch = 8
[optim]
steps = 1500
[train]
threads = 1
timeout = $timeout
eval_every = 1500
save_every = 1500
END

digest() { grep -o '"digest":"[0-9a-f]*"' "$1"; }
train() { echo "$gau" train "$HOSTS_DIR/config.toml" --quiet --json --set train.output="$HOSTS_DIR/$1" "${@:2}"; }
# Starts the job on both hosts, and returns once it is at work.
job_start() {
  hosts_up 2 1gbit
  host_start 1 job "$launch" -n 2 --threads 1 --grace $grace --hostfile "$HOSTS_DIR/hostfile" \
    --mpirun-args "$(hosts_mpirun_args)" -- $(train run "$@")
  for i in $(seq 600); do
    if [ -s run/metrics.jsonl ] && [ "$(wc -l <run/metrics.jsonl)" -gt 100 ]; then return 0; fi
    order_ended job && fail "the job ended with $(order_code job) before it was disturbed"
    sleep 0.05
  done
  fail "the job does not begin"
}
# Waits for at most SECONDS; sets `took`, since the time in `begin`, tenths of a second.
now() { echo $(($(date +%s%N) / 100000000)); }
job_wait() {
  until order_ended job; do
    took=$(($(now) - begin))
    [ $took -le $(($1 * 10)) ] || fail "$case: no end after $1 s: $(host_processes 1) $(host_processes 2)"
    sleep 0.05
  done
  took=$(($(now) - begin))
}
nothing_left() {
  local left
  until left=$(host_processes 1; host_processes 2); [ -z "$left" ]; do
    [ $(($(now) - begin)) -le $(($1 * 10)) ] || fail "$case: left after $1 s: $left"
    sleep 0.1
  done
}

undisturbed() { $(train alone) >alone.out 2>alone.err || fail "one process: $(cat alone.err)"; }

begin=$(now)
case $case in
equal | mended)
  undisturbed
  job_start
  begin=$(now)
  if [ "$case" = mended ]; then
    cable_cut 2
    sleep 3
    cable_mend 2
  fi
  job_wait 120
  [ "$(order_code job)" = 0 ] || fail "exit code $(order_code job)"
  [ -n "$(digest job.out)" ] && [ "$(digest job.out)" = "$(digest alone.out)" ] || fail "another digest than one process"
  nothing_left 130
  ;;
cut)
  HOSTS_RETRIES=4
  job_start
  begin=$(now)
  cable_cut 2
  job_wait $((timeout + 10))
  [ "$(order_code job)" = 76 ] || fail "exit code $(order_code job)"
  grep -q 'gave up waiting for rank' job.err || fail "nobody is named"
  nothing_left $((timeout + 10))
  ;;
crash)
  job_start
  begin=$(now)
  host_crash 2
  job_wait $((5 + grace))
  code=$(order_code job)
  [ "$code" = 76 ] || fail "exit code $code"
  grep -q -e "rank 1" -e "$HOSTS_NET.2" -e host2 job.err || fail "the host is not named"
  nothing_left $((5 + grace))
  ;;
*)
  echo "no such case: $case"
  exit 64
  ;;
esac
echo "$case: ended after $took tenths of a second"
