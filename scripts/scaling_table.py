#!/usr/bin/env python3
"""Tables of docs/scaling.md: what `gau plan` says of W1 and W2 on 8 to 1024 ranks.

scaling_table.py GAU [RATE [MEMORY_RATE]]    GFLOP/s and GB/s of a rank; the defaults are those of the tables.

Every rank keeps the workload's own batch, so the global batch grows with the ranks; virtual shards are as many as ranks.
"""
import json
import subprocess
import sys
import tempfile

WORKLOADS = {
    "W1": ((6, 768, 1536, 128, 12000), 128),
    "W2": ((4, 256, 512, 64, 4096), 64),
}
RANKS = [8, 16, 32, 64, 128, 256, 512, 1024]
GBITS = [1, 10, 100]


def plan(gau, sizes, batch, ranks, gbit, rate, memory_rate):
    keys = ("layers", "hidden", "intermediate", "key_size", "vocab_size")
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as config:
        config.write("[model]\n" + "".join(f"{k} = {v}\n" for k, v in zip(keys, sizes)))
        config.write(f"[data]\nlength = 64\nbatch = {batch * ranks}\n[train]\nshards = {ranks}\n")
        config.flush()
        words = [gau, "plan", config.name, "--json", "--ranks", str(ranks), "--bandwidth", str(gbit)]
        words += ["--rate", rate, "--memory-rate", memory_rate]
        return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    gau, rate, memory_rate = sys.argv[1], *(sys.argv[2:4] + ["220", "30"][len(sys.argv[2:4]):])
    for name, (sizes, batch) in WORKLOADS.items():
        print(f"\n{name}, {batch} × 64 tokens a rank; step in s, efficiency, hidden share of the exchange:\n")
        print("| ranks | " + " | ".join(f"{g} Gbit/s" for g in GBITS) + " | tokens/s at 10 |")
        print("|---|" + "---|" * (len(GBITS) + 1))
        for ranks in RANKS:
            plans = [plan(gau, sizes, batch, ranks, g, rate, memory_rate) for g in GBITS]
            cells = [f"{p['step_seconds']:.3f}, {100 * p['efficiency']:.0f} %, {100 * p['hidden_share']:.0f} %" for p in plans]
            print(f"| {ranks} | " + " | ".join(cells) + f" | {plans[1]['tokens_per_second']:,.0f} |")


main()
