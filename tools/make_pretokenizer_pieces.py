#!/usr/bin/env python3
"""Writes texts with the pieces that the `tokenizers` package makes (pip install tokenizers).

    python3 tools/make_pretokenizer_pieces.py > tests/unit/models/pretokenizer_pieces.json

The expressions are those of the models' own tokenizer.json; the texts are random, from a fixed seed
(--seed), made of what pre-tokenizers stumble over.
"""
import argparse
import json
import random
import unicodedata

from tokenizers import Regex, pre_tokenizers

from make_tokenizer_pairs import random_text

EXPRESSIONS = {
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
             r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200, help="texts of each kind")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    lines = []
    for name, expression in EXPRESSIONS.items():
        splitter = pre_tokenizers.Split(Regex(expression), "isolated")
        for _ in range(options.count):
            # What Unicode has since made of code points that were nothing differs by version.
            text = "".join(c for c in random_text(chance) if unicodedata.category(c) != "Cn")
            pieces = [piece for piece, _ in splitter.pre_tokenize_str(text)]
            lines.append(json.dumps({"kind": name, "text": text, "pieces": pieces}))
    print("[\n" + ",\n".join(lines) + "\n]")


if __name__ == "__main__":
    main()
