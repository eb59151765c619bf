#!/usr/bin/env bash
# From nothing to a table: packages, build, a corpus, a dot-product model trained at length 64 and a cosine model that goes on
# from it, both evaluated up to 4096, with CSV, JSON and plots. Run again, it keeps what is done and goes on where it stopped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
source scripts/packages.sh

usage() {
  cat <<'EOF'
usage: ./quickstart.sh [--quick] [--synthetic] [--out DIR]

  --quick      a few training steps and short contexts: the whole way in under a minute, figures of no meaning
  --synthetic  made text (a Markov chain with topics) instead of the King James Bible; needs no network
  --out DIR    where everything goes, inside the checkout [quickstart]
  --help       this text

Made text is also used when the Bible's package cannot be reached. Remove DIR to start anew.
EOF
}

quick=0
synthetic=0
out=""
while [ $# -gt 0 ]; do
  case "$1" in
    --quick) quick=1 ;;
    --synthetic) synthetic=1 ;;
    --out)
      [ $# -ge 2 ] || { echo "quickstart: --out needs a directory" >&2; exit 64; }
      out=$2
      shift
      ;;
    --help | -h) usage; exit 0 ;;
    *) echo "quickstart: unknown option '$1'; see ./quickstart.sh --help" >&2; exit 64 ;;
  esac
  shift
done

# Quick results and results on made text never mix with the real ones.
if [ -z "$out" ]; then
  out=quickstart
  [ "$synthetic" = 1 ] && out+=/synthetic
  [ "$quick" = 1 ] && out+=/quick
fi
case "$(realpath -m "$out")" in
  "$PWD"/?*) ;;
  *) echo "quickstart: --out $out lies outside of the checkout" >&2; exit 64 ;;
esac

gau=build/gau
if [ "$quick" = 1 ]; then
  dot_steps=20 cosine_steps=20 lengths=64,128,256 targets=60
  dot_time=seconds cosine_time=seconds eval_time=seconds
else
  dot_steps=1500 cosine_steps=750 lengths=64,128,256,512,1024,2048,4096 targets=0
  dot_time="about 3 minutes on two free cores" cosine_time="half of that" eval_time="about 2 minutes"
fi
methods=rope,rope+infoscale,rope+logn,window
seed=25  # of the splits: one that keeps three books of middle size for the test

step() { printf '\n== %s\n' "$*"; }

build() {
  step "1/5 packages and build (a few minutes the first time)"
  gau_install "${gau_build_packages[@]}"
  [ "$quick" = 1 ] || gau_install gnuplot-nox fonts-dejavu-core || echo "no gnuplot: there will be no plots"
  [ -f build/build.ninja ] || cmake --preset release -DGAU_BUILD_TESTS=OFF
  cmake --build build --parallel "$(nproc)" --target gau
}

# The program that prints the Bible: installed, or unpacked from its packages into the output directory.
find_bible() {
  if command -v bible >/dev/null; then
    bible=(bible)
  elif gau_install bible-kjv bible-kjv-text; then
    bible=("$(command -v bible || echo /usr/games/bible)")
  elif mkdir -p "$out/bible" && (cd "$out/bible" && apt-get download -q bible-kjv bible-kjv-text &&
    for package in ./*.deb; do dpkg-deb -x "$package" .; done); then
    bible=("$out/bible/usr/bin/bible" -p "$out/bible/usr/lib")
  else
    return 1
  fi
}

# A book a line, without the numbers of the verses: "Gen1:1 In the beginning …" -> "In the beginning …".
bible_books() {
  "${bible[@]}" -f 'gen1:1-rev22:21' | awk '
    { book = $1; sub(/[0-9]+:.*/, "", book); $1 = ""; sub(/^ /, "") }
    book != last { if (last != "") print ""; last = book; printf "%s", $0; next }
    { printf " %s", $0 }
    END { print "" }'
}

make_corpus() {
  step "2/5 corpus (seconds)"
  if [ -f "$out/corpus.h5" ]; then
    echo "kept $out/corpus.h5"
  elif [ "$synthetic" = 0 ] && find_bible; then
    bible_books >"$out/books.tmp"
    mv "$out/books.tmp" "$out/books.txt"
    "$gau" prepare "$out/books.txt" -o "$out/corpus.h5" --valid 0.05 --test 0.045 --seed "$seed"
  else
    [ "$synthetic" = 1 ] || echo "the Bible's package cannot be reached: made text takes its place"
    "$gau" prepare --synthetic markov -o "$out/corpus.h5" --documents 640 --length 8192 --valid 0.03 --test 0.02
  fi
}

# train NAME CONFIG STEPS [OPTION...]: trains train/examples/CONFIG.toml into $out/NAME, or goes on with it, or keeps it. The
# options are those of a fresh start.
train() {
  local run="$out/$1" config="train/examples/$2.toml" steps=$3 done_steps=0
  local how=("${@:4}")
  local step_pattern='"step":\([0-9]*\)'
  if [ -e "$run/checkpoints/latest" ]; then
    done_steps=$("$gau" info "$run" --json | sed -n "s/.*$step_pattern.*/\1/p")
    how=(--resume)
  elif [ -e "$run" ]; then
    how+=(--overwrite)  # it stopped before its first checkpoint
  fi
  if [ "${done_steps:-0}" -ge "$steps" ]; then
    echo "kept $run: $done_steps steps are done"
    return
  fi
  "$gau" train "$config" --set data.corpus="$out/corpus.h5" --set train.output="$run" \
    --set optim.steps="$steps" "${how[@]}"
}

evaluate() {
  step "5/5 evaluation at $lengths ($eval_time)"
  local table="$out/table.txt" limit=() file newer=1
  for file in "$gau" "$out"/corpus.h5 "$out"/{dot,cosine}/checkpoints/best/model.h5; do
    [ "$table" -nt "$file" ] || newer=0
  done
  if [ "$newer" = 1 ]; then
    echo "kept $table"
    cat "$table"
    return
  fi
  [ "$targets" = 0 ] || limit=(--targets "$targets")
  "$gau" eval "$out/dot" "$out/cosine" --data "$out/corpus.h5" --lengths "$lengths" --methods "$methods" "${limit[@]}" \
    --out "$out" | tee "$table.tmp"
  mv "$table.tmp" "$table"
}

mkdir -p "$out"
build
make_corpus
step "3/5 training with dot-product attention, $dot_steps steps ($dot_time)"
train dot dot "$dot_steps"
step "4/5 going on from it with cosine attention, $cosine_steps steps ($cosine_time)"
train cosine cosine-after-dot "$cosine_steps" --init-from "$out/dot"
evaluate
step "done in $((SECONDS / 60)) min $((SECONDS % 60)) s"
echo "table: $out/table.txt, $out/eval.csv, $out/eval.json"
if [ -f "$out/perplexity.svg" ]; then
  echo "plots: $out/perplexity.svg, $out/perplexity.png, $out/accuracy.svg, $out/accuracy.png"
fi
echo "models: $out/dot, $out/cosine"
if [ -f "$out/books.txt" ]; then
  echo "try:    $gau fill $out/cosine 'In the [MASK]eginning God created the hea[MASK]en'"
fi
