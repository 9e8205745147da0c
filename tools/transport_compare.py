#!/usr/bin/env python3
"""Frames through transport/ucx beside ucx_perftest, on the same transport, in the same run.

Each round measures every size with both, one after the other, so that a disturbed moment of the
machine meets both; the median of the rounds is reported. ucx_perftest moves bare active messages
and polls without sleeping; a frame also carries a checked header, two digests, credits and a pooled
buffer of the receiver's own.

    tools/transport_compare.py [--bench PROGRAM] [--rounds 5] [--json FILE]
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

SIZES = [4 << 10, 64 << 10, 1 << 20]
# Of transport/ucx/environment.cpp; both sides get the same.
ENVIRONMENT = {
    "UCX_TLS": "tcp",
    "UCX_NET_DEVICES": "lo",
    "UCX_TCP_PORT_RANGE": "0",
    "UCX_ZCOPY_THRESH": "inf",
    "UCX_TCP_CONN_NB": "y",
    "UCX_TCP_TX_SEG_SIZE": "256k",
    "UCX_TCP_RX_SEG_SIZE": "1m",
    "UCX_KEEPALIVE_INTERVAL": "inf",
    "UCX_HANDLE_ERRORS": "none",
    "UCX_DEBUG_SIGNO": "0",
    "UCX_MEM_EVENTS": "no",
    "UCX_WARN_UNUSED_ENV_VARS": "n",
    "UCX_LOG_LEVEL": "fatal",
}


def bench(program, environment, size, seconds):
    out = subprocess.run(
        [program, "--seconds", str(seconds), "--sizes", str(size)],
        env=environment, check=True, capture_output=True, text=True, timeout=120)
    result = json.loads(out.stdout)["results"][0]
    return {
        "p50_us": result["one_way_us"]["p50"],
        "p99_us": result["one_way_us"]["p99"],
        "gigabytes_per_second": result["gigabytes_per_second"],
    }


def last_figures(text):
    """The numbers of ucx_perftest's final line: iterations, percentile, average, overall, MB/s …"""
    rows = re.findall(r"^Final:\s+(.*)$", text, re.MULTILINE)
    if not rows:
        sys.exit(f"ucx_perftest printed no result:\n{text}")
    return [float(number) for number in rows[-1].split()]


def perftest(environment, test, size, iterations, port, percentile=50.0):
    common = ["ucx_perftest", "-p", str(port)]
    server = subprocess.Popen(common, env=environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    try:
        for _ in range(50):  # until the server listens
            client = subprocess.run(
                common + ["127.0.0.1", "-t", test, "-s", str(size), "-n", str(iterations),
                          "-w", "100", "-R", str(percentile)],
                env=environment, capture_output=True, text=True, timeout=120)
            if client.returncode == 0 and "Final:" in client.stdout:
                return last_figures(client.stdout)
            if server.poll() is not None:
                break
            time.sleep(0.05)
        sys.exit(f"ucx_perftest failed:\n{client.stdout}{client.stderr}")
    finally:
        server.kill()
        server.wait()


def perftest_both(environment, size, port):
    latency_rounds = 20000 if size <= 4096 else 8000 if size <= 65536 else 1500
    frames = 50000 if size <= 4096 else 20000 if size <= 65536 else 2000
    p50 = perftest(environment, "ucp_am_lat", size, latency_rounds, port)
    p99 = perftest(environment, "ucp_am_lat", size, latency_rounds, port + 1, 99.0)
    rate = perftest(environment, "ucp_am_bw", size, frames, port + 2)
    # Columns: iterations, percentile, average and overall latency, average and overall MB/s (2^20)
    return {
        "p50_us": p50[1],
        "p99_us": p99[1],
        "gigabytes_per_second": rate[5] * (1 << 20) / 1e9,
    }


def median_of(rounds):
    return {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", default="build/release/bin/bench_transport")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.7)
    parser.add_argument("--json", help="also write the figures there")
    arguments = parser.parse_args()
    environment = {**os.environ, **ENVIRONMENT}

    results = []
    measured = {size: ([], []) for size in SIZES}
    port = 13400
    for _ in range(arguments.rounds):
        for size in SIZES:
            ours, theirs = measured[size]
            ours.append(bench(arguments.bench, environment, size, arguments.seconds))
            theirs.append(perftest_both(environment, size, port))
            port += 3
    print(f"{'payload':>9}  {'':24}{'frames':>10}{'perftest':>10}{'ratio':>8}")
    for size in SIZES:
        ours, theirs = (median_of(rounds) for rounds in measured[size])
        row = {"bytes": size, "frames": ours, "ucx_perftest": theirs, "ratio": {}}
        for key, name in (("p50_us", "one way p50, us"), ("p99_us", "one way p99, us"),
                          ("gigabytes_per_second", "throughput, GB/s")):
            ratio = ours[key] / theirs[key]
            row["ratio"][key] = round(ratio, 3)
            print(f"{size:>9}  {name:24}{ours[key]:>10.2f}{theirs[key]:>10.2f}{ratio:>8.2f}")
        results.append(row)
    text = json.dumps({"benchmark": "transport_compare", "rounds": arguments.rounds,
                       "results": results}, indent=2)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    else:
        print(text)


if __name__ == "__main__":
    main()
