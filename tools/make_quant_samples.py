#!/usr/bin/env python3
"""Writes random weights of every type with the values the `gguf` package gives them (pip install
gguf numpy).

    python3 tools/make_quant_samples.py > tests/kernels/quant_samples.txt

For each type a line `type NAME COUNT`, then lines `w` with the weights' bytes and lines `y` with
the values as little-endian floats, both in hexadecimal. Every bit of a block is random (from a
fixed seed) but those of its half precision factors and float weights, which are finite.
"""
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

COUNT = 512
# Offsets of a block's half precision factors.
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0],
          "IQ4_XS": [0], "MXFP4": []}


def weights(name, random):
    if name in ("F32", "F16", "BF16"):
        values = random.uniform(-2, 2, COUNT).astype(np.float32)
        if name == "F16":
            return values.astype(np.float16).view(np.uint8)
        if name == "BF16":
            return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        return values.view(np.uint8)
    elements, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    blocks = random.integers(0, 256, (COUNT // elements, size), dtype=np.uint8)
    for offset in HALVES[name]:
        factors = random.uniform(-0.25, 0.25, len(blocks)).astype(np.float16)
        blocks[:, offset:offset + 2] = factors.view(np.uint8).reshape(-1, 2)
    if name == "MXFP4":  # 0 and 1 are subnormal, the others around 1
        blocks[:, 0] = [0, 1, 2, 3, 250, *random.integers(110, 140, len(blocks) - 5)]
    return blocks.reshape(-1)


def print_hexadecimal(letter, data):
    text = data.tobytes().hex()
    for at in range(0, len(text), 96):
        print(letter, text[at:at + 96])


def main():
    random = np.random.default_rng(20261201)
    for name in ["F32", "F16", "BF16", *HALVES]:
        data = weights(name, random)
        values = dequantize(data, GGMLQuantizationType[name]).astype("<f4").reshape(-1)
        print("type", name, COUNT)
        print_hexadecimal("w", data)
        print_hexadecimal("y", values)


if __name__ == "__main__":
    main()
