#!/usr/bin/env bash
# Line and branch coverage of actors/logic by its own tests, and nothing else's: a decision that is
# only reached through actors or sockets counts as not tested. The files that decide what survives a
# failure must be covered to the last branch; the exit code says whether they are.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
tools/coverage.sh [--missing] [--html FOLDER]

  --missing       also print every line with a branch that was never taken
  --html FOLDER   also write pages with the source and its branches

Needs gcovr: pip install gcovr (or python3 -m venv DIR && DIR/bin/pip install gcovr, and then
GCOVR=DIR/bin/gcovr). Builds in build/coverage, or in $TROUPE_COVERAGE_BUILD, without optimisation;
TROUPE_JOBS sets how many compilers run at once.

What counts: branches that a value decides. Not counted, because no test can take them: those that
only an exception takes (a failed allocation: --exclude-throw-branches), those in lines without code
of their own (--exclude-unreachable-branches), and those behind a failed TROUPE_CHECK, which ends
the process (--exclude-branches-by-pattern).
TEXT
}

missing=no html=""
while (($# > 0)); do
  case "$1" in
    --missing) missing=yes ;;
    --html) html="${2:?--html needs a folder}"; shift ;;
    --help | -h) usage; exit 0 ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done

# Every branch of these must be taken. Branches, not lines: gcov counts some lines that have no code
# to run (a closing brace, a member's initial value in a header).
complete=(journal liveness recovery recovery_placing recovery_standby restart resume standby_feed
  view_fence)

gcovr="${GCOVR:-gcovr}"
if ! command -v "$gcovr" >/dev/null; then
  echo "coverage: $gcovr is not here: pip install gcovr, or name it: GCOVR=/path/to/gcovr" >&2
  exit 77
fi

build="${TROUPE_COVERAGE_BUILD:-build/coverage}"
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
mkdir -p "$build"
# -O0 keeps branches where the source has them.
if ! cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DTROUPE_CAF=OFF -DTROUPE_TESTS=ON \
  "-DCMAKE_CXX_FLAGS=--coverage -O0" "${launcher[@]}" >"$build/configure.log" 2>&1; then
  cat "$build/configure.log" >&2
  exit 1
fi
cmake --build "$build" -j "${TROUPE_JOBS:-$(nproc)}" --target test_logic >"$build/build.log" ||
  { tail -50 "$build/build.log" >&2; exit 1; }

# Counts of an earlier run would hide what this one does not reach.
find "$build" -name '*.gcda' -delete
"$build/tests/test_logic" --log_level=error

report=("$gcovr" --root . --filter 'actors/logic/' --object-directory "$build"
  --exclude-throw-branches --exclude-unreachable-branches
  --exclude-branches-by-pattern '.*TROUPE_CHECK.*'
  "$build/actors/logic" "$build/tests/unit/logic")
"${report[@]}" --json-summary "$build/coverage.json" --json-summary-pretty \
  --json "$build/branches.json" >/dev/null
if [[ -n "$html" ]]; then
  mkdir -p "$html"
  "${report[@]}" --html-details "$html/index.html" >/dev/null
fi

python3 - "$build" "$missing" "${complete[@]}" <<'PYTHON'
import json
import sys

build, missing, complete = sys.argv[1], sys.argv[2] == "yes", sys.argv[3:]
summary = json.load(open(f"{build}/coverage.json"))
detail = json.load(open(f"{build}/branches.json"))
print(f"{'file':<44}{'lines':>14}{'branches':>16}")
short = []
for file in summary["files"] + [summary | {"filename": "all"}]:
    lines = f"{file['line_covered']}/{file['line_total']}"
    branches = f"{file['branch_covered']}/{file['branch_total']}"
    percent = 100 * file["branch_covered"] / max(1, file["branch_total"])
    must = any(file["filename"] == f"actors/logic/{name}.{end}"
               for name in complete for end in ("h", "cpp"))
    if must and file["branch_covered"] < file["branch_total"]:
        short.append(file["filename"])
    print(f"{file['filename']:<44}{lines:>14}{branches:>16}{percent:7.1f} %{' *' if must else ''}")
print("* must be complete")
for file in detail["files"]:
    text = open(file["file"]).read().splitlines()
    for line in file["lines"]:
        branches = [one for one in line["branches"] if not one.get("gcovr/excluded")]
        never = sum(branch["count"] == 0 for branch in branches)
        if missing and (never or line["count"] == 0):
            said = f"{never} of {len(branches)} branches" if line["count"] else "never run"
            number = line["line_number"]
            print(f"{file['file']}:{number}: {said}: {text[number - 1].strip()}")
if short:
    print(f"coverage: not complete: {', '.join(short)} (--missing says where)")
sys.exit(1 if short else 0)
PYTHON
