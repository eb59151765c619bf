#!/usr/bin/env python3
"""GAU-alpha in plain PyTorch, float64, written from the formulas alone, against what gau exports and predicts.

  h0 = rms(word[id] + type[t]);  x = rms(x + gau(x)), layer by layer;  logits = x head^T
  gau(x): swish(x Wi^T) = (u, v, z);  q = gq*z, k = gk*z, both rotated by RoPE;  (u * (softmax(scale*q.k + mask) v)) Wo^T

Models with random weights are written with h5py, exported by gau in every element type, and read here with the safetensors
package where it is installed, else with a reader of a few lines. Logits must agree within 1e-5. The package also writes a
directory that gau imports, and a pytorch_model.bin goes through scripts/torch_to_safetensors.py.

Usage: gau_torch.py PATH_OF_GAU SCRIPTS_DIRECTORY. Exit code 77: torch or h5py is missing.
"""
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy as np
    import torch
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)
try:
    import safetensors.torch as package
except ImportError:
    package = None

LAYERS, HIDDEN, INNER, KEY, VOCAB, TYPES = 3, 24, 40, 16, 37, 2
ROWS, LENGTH = 3, 29
NUMPY = {"F32": np.float32, "F16": np.float16}


def read_by_hand(path):
    """The format in a few lines, for machines without the package."""
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        raw = data[slice(*entry["data_offsets"])]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(raw, NUMPY[entry["dtype"]])
        tensors[name] = torch.from_numpy(values.astype(np.float64).reshape(entry["shape"]))
    return tensors


def read_tensors(path):
    tensors = read_by_hand(path)
    if package is not None:
        for name, tensor in package.load_file(path).items():
            assert torch.equal(tensor.double(), tensors[name]), name
    return tensors


def rms(x, eps):
    return x / torch.sqrt(torch.mean(x * x, -1, keepdim=True) + eps)


def rotate(x):
    """Pairs (2i, 2i+1) turned by position * 10000^(-2i/d)."""
    d = x.shape[-1]
    angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * 10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = torch.stack([even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos()], -1)
    return turned.flatten(-2)


def law_factor(law, keys, key_size):
    """What multiplies the logits of a sequence with `keys` valid keys."""
    name, _, values = law.partition(":")
    values = dict(pair.split("=") for pair in values.split(";") if pair)
    if name in ("default", "none"):
        return torch.ones_like(keys)
    if name == "softmax-plus":
        return torch.log(keys.clamp(min=16)) / math.log(512)
    if name == "logn":
        return (torch.log(keys) / math.log(float(values["train"]))).clamp(min=1)
    if name == "infoscale":
        return torch.sqrt((1 - keys ** (-2 / key_size)) / (1 - float(values["train"]) ** (-2 / key_size)))
    raise ValueError(law)


def logits(tensors, config, ids, mask, types):
    eps, ours = config["layer_norm_eps"], config["gau"]
    prefix = "gau_alpha.embeddings."
    x = tensors[prefix + "word_embeddings.weight"][ids] + tensors[prefix + "token_type_embeddings.weight"][types]
    x = rms(x, eps)
    factor = law_factor(ours["law"], mask.sum(-1).double(), config["attention_key_size"])[:, None, None]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"gau_alpha.encoder.layer.{layer}.gau."
        y = torch.nn.functional.silu(x @ tensors[prefix + "i_dense.weight"].T)
        inner = config["intermediate_size"]
        u, v, z = y[..., :inner], y[..., inner : 2 * inner], y[..., 2 * inner :]
        q, k = z * tensors[prefix + "q_scaleoffset.weight"], z * tensors[prefix + "k_scaleoffset.weight"]
        scale = config["attention_key_size"] ** -0.5
        if ours["kind"] in ("cosine", "keynorm"):
            k = k / (k.norm(dim=-1, keepdim=True) + 1e-9)
            scale = 1
        if ours["kind"] == "cosine":
            q = q / (q.norm(dim=-1, keepdim=True) + 1e-9)
            scale = ours["scale"]
        scores = scale * factor * (rotate(q) @ rotate(k).transpose(-1, -2))
        scores = scores.masked_fill(mask[:, None, :] == 0, -math.inf)
        attended = u * (torch.softmax(scores, -1) @ v)
        x = rms(x + attended @ tensors[prefix + "o_dense.weight"].T, eps)
    return x @ tensors["cls.predictions.decoder.weight"].T


class Bench:
    def __init__(self, program, scripts, directory):
        self.program, self.scripts, self.directory = program, scripts, directory
        random = np.random.default_rng(5)
        self.ids = random.integers(1, VOCAB, (ROWS, LENGTH))
        self.mask = np.ones((ROWS, LENGTH), int)
        self.mask[1, 17:] = 0
        self.types = random.integers(0, TYPES, (ROWS, LENGTH))
        self.inputs = self.path("inputs.h5")
        with h5py.File(self.inputs, "w") as file:
            file["input_ids"], file["attention_mask"], file["type_ids"] = self.ids, self.mask, self.types

    def path(self, name):
        return os.path.join(self.directory, name)

    def gau(self, *words):
        subprocess.run([self.program, *words, "--quiet"], check=True)

    def make_model(self, path, tied, attributes):
        random = np.random.default_rng(7)
        shapes = {"gau_alpha.embeddings.word_embeddings.weight": (VOCAB, HIDDEN),
                  "gau_alpha.embeddings.token_type_embeddings.weight": (TYPES, HIDDEN)}
        for layer in range(LAYERS):
            prefix = f"gau_alpha.encoder.layer.{layer}.gau."
            shapes[prefix + "i_dense.weight"] = (2 * INNER + KEY, HIDDEN)
            shapes[prefix + "o_dense.weight"] = (HIDDEN, INNER)
            shapes[prefix + "q_scaleoffset.weight"] = (KEY,)
            shapes[prefix + "k_scaleoffset.weight"] = (KEY,)
        if not tied:
            shapes["cls.predictions.decoder.weight"] = (VOCAB, HIDDEN)
        with h5py.File(path, "w") as file:
            for name, shape in shapes.items():
                file["parameters/" + name] = (random.standard_normal(shape) * (1 if len(shape) == 1 else 0.4)).astype("f4")
            for name, value in attributes.items():
                file.attrs[name] = value

    def check(self, model, exported, what):
        """Logits of `model` by gau beside those of the tensors in the directory `exported`."""
        with open(os.path.join(exported, "config.json")) as file:
            config = json.load(file)
        tensors = read_tensors(os.path.join(exported, "model.safetensors"))
        wanted = logits(tensors, config, torch.tensor(self.ids), torch.tensor(self.mask), torch.tensor(self.types)).numpy()
        for dtype, tolerance in (("f32", 1e-5), ("f64", 1e-11)):
            out = self.path("out.h5")
            self.gau("predict", model, "--ids", self.inputs, "-o", out, "--dtype", dtype)
            with h5py.File(out) as file:
                got = file["logits"][...]
            difference = np.abs(got - wanted).max() / np.abs(wanted).max()
            print(f"{what}, predicted in {dtype}: {difference:.1e}")
            assert difference < tolerance, what

    def check_rounding(self, name, dtype):
        """gau rounds as torch does."""
        exact, rounded = (read_tensors(os.path.join(self.path(f"{name}-{d}"), "model.safetensors")) for d in ("f32", dtype))
        narrow = torch.bfloat16 if dtype == "bf16" else torch.float16
        for key, values in exact.items():
            assert torch.equal(values.float().to(narrow).double(), rounded[key]), key

    def run(self):
        cases = {"dot": {"L_train": 32},
                 "softmax-plus": {"L_train": 32, "law": "softmax-plus"},
                 "cosine": {"L_train": 8, "kind": "cosine", "scale": 16.0, "law": "infoscale:train=8;count=valid"},
                 "keynorm": {"L_train": 8, "kind": "keynorm", "law": "logn:train=8;count=valid"},
                 "untied": {"L_train": 32}}
        for name, attributes in cases.items():
            model = self.path(name + ".h5")
            self.make_model(model, name != "untied", attributes)
            for dtype in ("f32", "bf16", "f16"):
                exported, back = self.path(f"{name}-{dtype}"), self.path(f"{name}-{dtype}.h5")
                self.gau("export", model, "-o", exported, "--dtype", dtype)
                self.gau("import", exported, "-o", back)
                self.check(back, exported, f"{name} {dtype}")
                if dtype == "f32":
                    self.check(model, exported, f"{name} as it was")
                else:
                    self.check_rounding(name, dtype)
        if package is not None:
            self.written_by_the_package()

    def written_by_the_package(self):
        source = self.path("dot-f32")
        tensors = package.load_file(os.path.join(source, "model.safetensors"))
        with open(os.path.join(source, "config.json")) as file:
            config = json.load(file)
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for binary in (False, True):
                name = f"package-{dtype}-{binary}".replace("torch.", "")
                directory = self.path(name)
                os.mkdir(directory)
                cast = {key: value.to(dtype) for key, value in tensors.items()}
                if binary:
                    cast["cls.predictions.decoder.weight"] = cast["gau_alpha.embeddings.word_embeddings.weight"]
                    torch.save(cast, os.path.join(directory, "pytorch_model.bin"))
                    script = os.path.join(self.scripts, "torch_to_safetensors.py")
                    subprocess.run([sys.executable, script, directory], check=True, stdout=subprocess.DEVNULL)
                else:
                    package.save_file(cast, os.path.join(directory, "model.safetensors"), metadata={"format": "pt"})
                with open(os.path.join(directory, "config.json"), "w") as file:
                    json.dump(config, file)
                self.gau("import", directory, "-o", self.path(name + ".h5"))
                self.check(self.path(name + ".h5"), directory, name)


def main():
    with tempfile.TemporaryDirectory() as directory:
        Bench(sys.argv[1], sys.argv[2], directory).run()


if __name__ == "__main__":
    main()
