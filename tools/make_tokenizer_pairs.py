#!/usr/bin/env python3
"""Writes texts with the tokens that the `tokenizers` package gives them (pip install tokenizers).

    make_tiny_model tiny.gguf
    python3 tools/make_tokenizer_pairs.py tiny.gguf > tests/unit/models/tiny_tokenizer_pairs.json

The vocabulary, merges and pre-tokenizer's name (gpt-2, smollm or starcoder) come from the GGUF
file; the texts are random, from a fixed seed (--seed), made of what pre-tokenizers stumble over.
Special tokens are parsed.
"""
import argparse
import json
import random
import struct

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?",
           10: "Q", 11: "q", 12: "d"}

PARTS = [" ", "  ", "\n", "\t", "\u00a0", "\u3000", "\r\n", "'", "'s", "'ll", "'LL", "a", "the ",
         "hello", " world", "é", "ß", "ﬁ", "日本", "語", "नमस्ते", "👍🏽", "1", "23", "½", "Ⅳ", "٣", "!",
         "...", "_", "-", "\u200b", "\u0301", "\u0085", "\ufeff", "𝒳", "한", "<|im_",
         "<|im_start|>", "<|im_end|>", "|>", "don't", "x1y2", "  3"]


def read_metadata(path):
    with open(path, "rb") as file:
        def scalar(form):
            return struct.unpack("<" + form, file.read(struct.calcsize(form)))[0]

        def value(kind):
            if kind == 8:
                return file.read(scalar("Q")).decode("utf-8", "replace")
            if kind == 9:
                element, count = scalar("I"), scalar("Q")
                return [value(element) for _ in range(count)]
            return scalar(SCALARS[kind])

        if file.read(4) != b"GGUF" or scalar("I") not in (2, 3):
            raise SystemExit(f"{path}: not a GGUF file of version 2 or 3")
        scalar("Q")
        return {value(8): value(scalar("I")) for _ in range(scalar("Q"))}


def make_tokenizer(metadata):
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    kinds = metadata.get("tokenizer.ggml.token_type", [1] * len(tokens))
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = {"gpt-2": byte_level,
                               "smollm": pre_tokenizers.Sequence([digits, byte_level]),
                               "starcoder": pre_tokenizers.Sequence([digits, byte_level]),
                               }[metadata["tokenizer.ggml.pre"]]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False)
                                  for token, kind in zip(tokens, kinds) if kind == 3])
    return tokenizer


def random_text(chance):
    if chance.random() < 0.7:
        return "".join(chance.choice(PARTS) for _ in range(chance.randint(1, 14)))
    spans = [(1, 0x7F), (0x80, 0x2FFF), (0x3000, 0xD7FF), (0xE000, 0x1EFFF)]
    return "".join(chr(chance.randint(*chance.choice(spans))) for _ in range(chance.randint(1, 10)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="GGUF file")
    parser.add_argument("--count", type=int, default=160)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    tokenizer = make_tokenizer(read_metadata(options.model))
    chance = random.Random(options.seed)
    texts = [random_text(chance) for _ in range(options.count)]
    pairs = []
    for text in texts:
        tokens = tokenizer.encode(text, add_special_tokens=False).ids
        pairs.append(json.dumps({"text": text, "tokens": tokens}))
    print("[\n" + ",\n".join(pairs) + "\n]")


if __name__ == "__main__":
    main()
