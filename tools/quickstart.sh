#!/usr/bin/env bash
# From a bare Debian 12 or Ubuntu 24.04 to a cluster that survives: installs packages, builds,
# fetches the demo model, starts three daemons on this machine, streams an answer, kills the middle
# daemon with kill -9 in mid-answer, and shows that the answer went on, byte for byte as if nothing
# had happened. Runs as root or with sudo, asks nothing, can be repeated.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
tools/quickstart.sh [--keep]

  --keep   leave the cluster running at the end; stop it with
           build/release/bin/troupe down --name quickstart

TROUPE_JOBS sets how many compilers run at once.
TEXT
}
keep=no
case "${1:-}" in
  "") ;;
  --keep) keep=yes ;;
  --help | -h) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac

bold="" plain=""
if [[ -t 1 ]]; then bold=$'\e[1m' plain=$'\e[0m'; fi
say() { printf '\n%s== %s%s\n' "$bold" "$*" "$plain"; }
troupe() { build/release/bin/troupe "$@"; }
name=quickstart
prompt="Tell me a story about a lighthouse keeper and a storm."
sampling=(--max-tokens 500 --temperature 0.8 --top-p 0.95 --seed 1)

work="$(mktemp -d)"
finish() {
  local code=$?
  if [[ "$keep" == no || $code -ne 0 ]]; then troupe down --name "$name" >/dev/null 2>&1 || true; fi
  rm -rf "$work"
  if ((code != 0)); then echo "quickstart: failed" >&2; fi
  exit "$code"
}
trap finish EXIT

say "packages"
tools/install_packages.sh

say "building (a few minutes the first time)"
cores="$(nproc)"
gigabytes="$(awk '/^MemTotal:/ {print int($2 / 1048576)}' /proc/meminfo)"
jobs=$((gigabytes / 2 < cores ? gigabytes / 2 : cores))
jobs="${TROUPE_JOBS:-$((jobs < 1 ? 1 : jobs))}"
mkdir -p build/release
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
if ! cmake --preset release "${launcher[@]}" >build/release/configure.log 2>&1; then
  cat build/release/configure.log >&2
  exit 1
fi
cmake --build build/release -j "$jobs" --target troupe trouped

say "model"
troupe pull smollm2-135m

say "three daemons on this machine"
troupe down --name "$name" >/dev/null 2>&1 || true
# Any free corner of the machine will do.
for port in 7420 7520 7620 7720; do
  if troupe up --name "$name" --nodes 3 --port "$port" smollm2-135m; then break; fi
  if [[ "$port" == 7720 ]]; then exit 1; fi
done
troupe status --name "$name"

say "an answer, undisturbed"
troupe generate --name "$name" "${sampling[@]}" "$prompt" | tee "$work/undisturbed"

say "the same question again; node-2 dies in the middle of it"
find_node_2='import json, sys
print(next(n["process"] for n in json.load(sys.stdin)["nodes"] if n["id"] == "node-2"))'
victim="$(troupe status --name "$name" --json | python3 -c "$find_node_2")"
half=$(($(wc -c <"$work/undisturbed") / 3))
troupe generate --name "$name" "${sampling[@]}" "$prompt" >"$work/disturbed" &
answer=$!
while kill -0 "$answer" 2>/dev/null && (($(wc -c <"$work/disturbed") < half)); do sleep 0.01; done
seen="$(wc -c <"$work/disturbed")"
kill -9 "$victim"
echo "kill -9 $victim (the daemon of node-2), after $seen bytes of the answer"
wait "$answer"
printf '%s%s[kill -9 here]%s%s\n' "$(head -c "$seen" "$work/disturbed")" "$bold" "$plain" \
  "$(tail -c +$((seen + 1)) "$work/disturbed")"

say "what moved"
troupe status --name "$name"

if ! cmp "$work/undisturbed" "$work/disturbed"; then
  echo "the two answers differ" >&2
  exit 1
fi
if ((seen >= $(wc -c <"$work/undisturbed"))); then
  echo "the answer was over before the kill: nothing was shown" >&2
  exit 1
fi
printf '\nBoth answers are the same %s bytes (sha256 %s…).\n' "$(wc -c <"$work/disturbed")" \
  "$(sha256sum "$work/disturbed" | head -c 16)"

if [[ "$keep" == no ]]; then
  say "stopping"
  troupe down --name "$name"
else
  echo "the cluster still runs: build/release/bin/troupe generate --name $name \"Hello\""
fi
trap - EXIT
rm -rf "$work"
echo "quickstart: ok"
