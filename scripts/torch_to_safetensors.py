#!/usr/bin/env python3
"""Turns a pytorch_model.bin into a model.safetensors that `gau import` reads.

The file is loaded with weights_only=True, so that nothing in it is executed. Tensors that share memory (a tied head) are
copied, since the format has no sharing. Names, shapes, element types and values stay as they are.

Needs torch and safetensors (pip install torch safetensors); gau itself needs neither.

Example:
  scripts/torch_to_safetensors.py chinese_GAU-alpha-char_L-24_H-768
  gau import chinese_GAU-alpha-char_L-24_H-768 -o gau-alpha
"""
import argparse
import os
import sys


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", help="pytorch_model.bin, or a directory that holds it")
    parser.add_argument("-o", "--output", help="file to write [model.safetensors beside the source]")
    parser.add_argument("--overwrite", action="store_true", help="replace an output that is there")
    return parser.parse_args()


def main():
    options = parse()
    source = os.path.join(options.source, "pytorch_model.bin") if os.path.isdir(options.source) else options.source
    output = options.output or os.path.join(os.path.dirname(source), "model.safetensors")
    if os.path.exists(output) and not options.overwrite:
        sys.exit(f"{output}: is there already; give --overwrite")
    try:
        import torch
        from safetensors.torch import save_file
    except ImportError as error:
        sys.exit(f"{error}; pip install torch safetensors")
    try:
        state = torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:
        sys.exit(f"{source}: cannot be loaded: {error}")
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    others = sorted(set(state) - set(tensors))
    if others:
        sys.exit(f"{source}: holds entries that are no tensors: {', '.join(others[:5])}")
    temporary = output + ".tmp"
    save_file({name: value.detach().clone().contiguous() for name, value in tensors.items()}, temporary, metadata={"format": "pt"})
    os.replace(temporary, output)
    print(f"{output}: {len(tensors)} tensors")


if __name__ == "__main__":
    main()
