#!/usr/bin/env python3
"""Compares Troupe with llama.cpp and transformers on one GGUF file.

    tools/compare_peers.py MODEL.gguf [--venv DIR] [--bin DIR] [--threads N] [--json OUT]
                                      [--skip-speed]

What is compared, always on the same token ids, which every program is given:
  perplexity  tests/data/english_20k.txt in windows of 512 tokens, each from an empty context, all
              but a window's first token scored; ours within 1 % of each peer's
  greedy      the first 16 tokens after each of 20 prompts (tests/data/prompts.txt in the model's
              chat template); equal for at least 17 of 20
  speed       prefill of 512 tokens and decode of 64 against llama.cpp, at equal thread counts

The peers are llama-cpp-python (built from source: minutes) and transformers with torch, from PyPI.
They are taken from the Python that runs this script if they are installed there, else from a
virtual environment that is made in --venv. Each part runs in a process of its own, so that no two
libraries meet in one.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ["numpy", "gguf", "torch", "transformers", "accelerate", "llama-cpp-python"]
WINDOW = 512
GREEDY_TOKENS = 16
GREEDY_EQUAL_MIN = 17 / 20
PERPLEXITY_RATIO_MAX = 1.01
SPEED_PROMPT, SPEED_DECODE, SPEED_REPEATS = 512, 64, 3


def main():
    arguments = parse_arguments()
    if arguments.worker:
        return run_worker(arguments)
    python = python_with_peers(arguments.venv)
    ours = Troupe(arguments)
    ids = call_worker(python, arguments, "ids", {})
    print(
        f"{sum(map(len, ids['windows']))} tokens in {len(ids['windows'])} windows, "
        f"{len(ids['prompts'])} prompts"
    )

    measured = {"troupe": ours.evaluate(ids)}
    for peer in ("llama.cpp", "transformers"):
        print(f"asking {peer} …", flush=True)
        measured[peer] = call_worker(python, arguments, peer, ids)
    report = {
        "model": pathlib.Path(arguments.model).name,
        "threads": arguments.threads,
        "perplexity": compare_perplexity(measured),
        "greedy": compare_greedy(measured),
    }
    if not arguments.skip_speed:
        report["speed"] = [
            compare_speed(python, arguments, ours, threads)
            for threads in range(1, arguments.threads + 1)
        ]
    report["passed"] = all(
        entry["passed"]
        for part in ("perplexity", "greedy")
        for entry in report[part]["against"].values()
    )
    print_report(report)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n")
    return 0 if report["passed"] else 1


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument(
        "--venv", default=str(pathlib.Path.home() / ".cache" / "troupe" / "peers-venv")
    )
    parser.add_argument(
        "--bin", default=str(ROOT / "build" / "release" / "bin"), help="where model_eval is"
    )
    parser.add_argument(
        "--threads", type=int, default=min(2, os.cpu_count() or 1), help="the most that are used"
    )
    parser.add_argument("--kernels", default="auto")
    parser.add_argument("--json", help="file for the results")
    parser.add_argument("--skip-speed", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


# --- our side ---


class Troupe:
    def __init__(self, arguments):
        self.program = pathlib.Path(arguments.bin) / "model_eval"
        if not self.program.exists():
            sys.exit(f"{self.program} is missing: build the target model_eval, or name its --bin")
        self.arguments = arguments

    def call(self, command, request=None, threads=None, options=()):
        done = subprocess.run(
            [
                self.program,
                self.arguments.model,
                "--kernels",
                self.arguments.kernels,
                "--threads",
                str(threads or self.arguments.threads),
                command,
                *options,
            ],
            input=json.dumps(request or {}),
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            sys.exit(f"model_eval {command} failed: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def evaluate(self, ids):
        perplexity = self.call("perplexity", {"windows": ids["windows"]})
        greedy = self.call("greedy", {"prompts": ids["prompts"], "tokens": GREEDY_TOKENS})
        return {
            "scores": perplexity["negative_log_likelihoods"],
            "answers": greedy["answers"],
        }

    def speed(self, threads):
        return self.call(
            "speed",
            threads=threads,
            options=[
                "--prompt",
                str(SPEED_PROMPT),
                "--decode",
                str(SPEED_DECODE),
                "--repeats",
                str(SPEED_REPEATS),
            ],
        )


# --- comparing ---


def perplexity_of(result):
    return math.exp(statistics.fmean(result["scores"]))


def mean_difference(a, b):
    """Of the log-likelihoods of single tokens: how far apart two programs are, noise included."""
    return statistics.fmean(abs(x - y) for x, y in zip(a["scores"], b["scores"], strict=True))


def compare_perplexity(measured):
    ours = perplexity_of(measured["troupe"])
    against = {}
    for peer in ("llama.cpp", "transformers"):
        theirs = perplexity_of(measured[peer])
        ratio = max(ours / theirs, theirs / ours)
        against[peer] = {
            "perplexity": theirs,
            "difference_percent": (ours / theirs - 1) * 100,
            "mean_token_difference": mean_difference(measured["troupe"], measured[peer]),
            "passed": ratio <= PERPLEXITY_RATIO_MAX,
        }
    return {
        "troupe": ours,
        "tokens": len(measured["troupe"]["scores"]),
        "against": against,
        "peers_mean_token_difference": mean_difference(
            measured["llama.cpp"], measured["transformers"]
        ),
    }


def compare_greedy(measured):
    ours = measured["troupe"]["answers"]
    against = {}
    for peer in ("llama.cpp", "transformers"):
        theirs, margins = measured[peer]["answers"], measured[peer]["margins"]
        same = [common_prefix(a, b) for a, b in zip(ours, theirs, strict=True)]
        equal = sum(length == GREEDY_TOKENS for length in same)
        # How sure the peer was of the first token on which we differ: near ties fall either way.
        differences = [
            {"prompt": i, "token": length, "peer_margin": margins[i][length]}
            for i, length in enumerate(same)
            if length < GREEDY_TOKENS
        ]
        against[peer] = {
            "equal": equal,
            "of": len(ours),
            "differences": differences,
            "median_margin": statistics.median(sum(margins, [])),
            "passed": equal >= GREEDY_EQUAL_MIN * len(ours),
        }
    peers = [
        common_prefix(a, b)
        for a, b in zip(
            measured["llama.cpp"]["answers"], measured["transformers"]["answers"], strict=True
        )
    ]
    return {
        "tokens": GREEDY_TOKENS,
        "against": against,
        "peers_with_each_other": sum(length == GREEDY_TOKENS for length in peers),
    }


def common_prefix(a, b):
    length = 0
    while length < min(len(a), len(b)) and a[length] == b[length]:
        length += 1
    return length


def compare_speed(python, arguments, ours, threads):
    print(f"speed with {threads} thread{'s' if threads > 1 else ''} …", flush=True)
    # Theirs between two of ours: the load of a machine changes.
    first = ours.speed(threads)
    theirs = call_worker(python, arguments, "llama.cpp speed", {"threads": threads})
    second = ours.speed(threads)
    entry = {"threads": threads, "load_average": os.getloadavg()[0]}
    for what in ("prefill_tokens_per_second", "decode_tokens_per_second"):
        mine = (first[what] + second[what]) / 2
        entry[what] = {"troupe": mine, "llama.cpp": theirs[what], "ratio": mine / theirs[what]}
    entry["resident_peak_bytes"] = first["resident_peak_bytes"]
    entry["resident_ratio"] = (first["resident_peak_bytes"] - first["kv_bytes"]) / first[
        "file_bytes"
    ]
    return entry


def print_report(report):
    perplexity, greedy = report["perplexity"], report["greedy"]
    verdict = lambda entry: "ok" if entry["passed"] else "FAILED"
    print(f"\n{report['model']}\n")
    print(f"perplexity, {perplexity['tokens']} tokens     troupe {perplexity['troupe']:9.4f}")
    for peer, entry in perplexity["against"].items():
        print(
            f"  {peer:14} {entry['perplexity']:9.4f}   "
            f"{entry['difference_percent']:+7.3f} %   "
            f"a token's log-likelihood by {entry['mean_token_difference']:.4f}   {verdict(entry)}"
        )
    print(
        f"  the peers from each other: a token's log-likelihood by "
        f"{perplexity['peers_mean_token_difference']:.4f}"
    )
    print(f"first {greedy['tokens']} greedy tokens equal")
    for peer, entry in greedy["against"].items():
        print(f"  {peer:14} {entry['equal']} of {entry['of']}   {verdict(entry)}")
        if entry["differences"]:
            widest = max(d["peer_margin"] for d in entry["differences"])
            print(
                f"                 where we differ first, it preferred its token by at most "
                f"{widest:.3f} logits"
                f" (median of all tokens: {entry['median_margin']:.3f})"
            )
    print(f"  the peers with each other: {greedy['peers_with_each_other']}")
    for entry in report.get("speed", []):
        for what in ("prefill", "decode"):
            rate = entry[f"{what}_tokens_per_second"]
            print(
                f"{what:8} {entry['threads']} thread(s)   troupe {rate['troupe']:8.1f}   "
                f"llama.cpp {rate['llama.cpp']:8.1f} tokens/s   ratio {rate['ratio']:.2f}"
            )
        print(
            f"memory   {entry['threads']} thread(s)   resident peak without KV cache / file: "
            f"{entry['resident_ratio']:.2f}"
        )


# --- the peers, each in a process of its own ---


def python_with_peers(venv):
    check = "import numpy, gguf, torch, transformers, accelerate, llama_cpp"
    candidates = [sys.executable, str(pathlib.Path(venv) / "bin" / "python")]
    for python in candidates:
        if (
            os.path.exists(python)
            and subprocess.run([python, "-c", check], capture_output=True).returncode == 0
        ):
            return python
    print(f"installing {', '.join(PACKAGES)} into {venv} …", flush=True)
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    subprocess.run([candidates[1], "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return candidates[1]


def call_worker(python, arguments, worker, request):
    done = subprocess.run(
        [
            python,
            __file__,
            arguments.model,
            "--threads",
            str(arguments.threads),
            "--worker",
            worker,
        ],
        input=json.dumps(request),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(f"{worker} failed:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def run_worker(arguments):
    request = json.load(sys.stdin)
    workers = {
        "ids": make_ids,
        "llama.cpp": ask_llama,
        "llama.cpp speed": time_llama,
        "transformers": ask_transformers,
    }
    print(json.dumps(workers[arguments.worker](arguments, request)))
    return 0


def make_ids(arguments, _):
    """By llama.cpp's tokenizer: the text in windows, the prompts in the file's chat template."""
    from jinja2 import Environment
    from llama_cpp import Llama

    llama = Llama(arguments.model, vocab_only=True, verbose=False)
    text = (ROOT / "tests" / "data" / "english_20k.txt").read_bytes()
    tokens = llama.tokenize(text, add_bos=False, special=False)
    template = Environment(trim_blocks=True, lstrip_blocks=True).from_string(
        llama.metadata["tokenizer.chat_template"]
    )
    prompts = []
    for line in (ROOT / "tests" / "data" / "prompts.txt").read_text().splitlines():
        if not line:
            continue
        rendered = template.render(
            messages=[{"role": "user", "content": line}], add_generation_prompt=True
        )
        prompts.append(llama.tokenize(rendered.encode(), add_bos=False, special=True))
    windows = [tokens[i : i + WINDOW] for i in range(0, len(tokens), WINDOW)]
    return {"windows": [w for w in windows if len(w) > 1], "prompts": prompts}


def ask_llama(arguments, ids):
    import numpy
    from llama_cpp import Llama

    llama = Llama(
        arguments.model,
        n_ctx=2048,
        n_batch=WINDOW,
        n_threads=arguments.threads,
        n_threads_batch=arguments.threads,
        logits_all=True,
        verbose=False,
    )
    scores = []
    for window in ids["windows"]:
        llama.reset()
        llama.eval(window)
        logits = numpy.asarray(llama.scores[: len(window)], dtype=numpy.float64)
        scores += scores_of(numpy, logits, window)
    answers, margins = [], []
    for prompt in ids["prompts"]:
        llama.reset()
        fed, answer, margin = prompt, [], []
        while len(answer) < GREEDY_TOKENS:
            llama.eval(fed)
            take_best(numpy, llama.scores[llama.n_tokens - 1], answer, margin)
            fed = answer[-1:]
        answers.append(answer)
        margins.append(margin)
    return {
        "scores": scores,
        "answers": answers,
        "margins": margins,
    }


def take_best(numpy, logits, answer, margin):
    """The largest logit's token, and how far the second largest lies below."""
    second, first = numpy.argpartition(logits, -2)[-2:]
    answer.append(int(first))
    margin.append(float(logits[first] - logits[second]))


def scores_of(numpy, logits, window):
    """-log of the probability of each token but the first, from the logits one position earlier."""
    logits = logits[:-1]
    largest = logits.max(axis=1)
    log_sums = numpy.log(numpy.exp(logits - largest[:, None]).sum(axis=1)) + largest
    return (log_sums - logits[numpy.arange(len(window) - 1), window[1:]]).tolist()


def time_llama(arguments, request):
    from llama_cpp import Llama

    threads = request["threads"]
    llama = Llama(
        arguments.model,
        n_ctx=1024,
        n_batch=SPEED_PROMPT,
        n_threads=threads,
        n_threads_batch=threads,
        verbose=False,
    )
    vocabulary = llama.n_vocab()
    prompt = [(i * 7919 + 13) % vocabulary for i in range(SPEED_PROMPT)]
    prefill, decode = [], []
    for repeat in range(SPEED_REPEATS + 1):
        llama.reset()
        start = time.perf_counter()
        llama.eval(prompt)
        prefill_seconds = time.perf_counter() - start
        start = time.perf_counter()
        for i in range(SPEED_DECODE):
            llama.eval([(i * 31 + 7) % vocabulary])
        decode_seconds = time.perf_counter() - start
        if repeat > 0:
            prefill.append(SPEED_PROMPT / prefill_seconds)
            decode.append(SPEED_DECODE / decode_seconds)
    middle = SPEED_REPEATS // 2
    return {
        "prefill_tokens_per_second": sorted(prefill)[middle],
        "decode_tokens_per_second": sorted(decode)[middle],
    }


def ask_transformers(arguments, ids):
    import numpy
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(arguments.threads)
    path = pathlib.Path(arguments.model).resolve()
    model = AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.float32
    )
    model.eval()
    scores, answers, margins = [], [], []
    with torch.no_grad():
        for window in ids["windows"]:
            logits = model(torch.tensor([window])).logits[0].to(torch.float64).numpy()
            scores += scores_of(numpy, logits, window)
        for prompt in ids["prompts"]:
            fed, past, answer, margin = torch.tensor([prompt]), None, [], []
            while len(answer) < GREEDY_TOKENS:
                output = model(fed, past_key_values=past, use_cache=True)
                past = output.past_key_values
                take_best(numpy, output.logits[0, -1].numpy(), answer, margin)
                fed = torch.tensor([answer[-1:]])
            answers.append(answer)
            margins.append(margin)
    return {
        "scores": scores,
        "answers": answers,
        "margins": margins,
    }


if __name__ == "__main__":
    sys.exit(main())
