#!/usr/bin/env bash
# Installs what building and testing Troupe needs and this machine lacks: Debian 12, Ubuntu 24.04
# or newer, as root or through sudo. Asks nothing, and needs no network when nothing is missing.
set -euo pipefail

packages=(
  g++ cmake ninja-build pkg-config git
  libcaf-dev libucx-dev ucx-utils libcapnp-dev capnproto
  libspdlog-dev libfmt-dev libboost-dev libboost-test-dev libyaml-cpp-dev libcli11-dev
  nlohmann-json3-dev libsqlite3-dev libxxhash-dev libssl-dev
)
# Commands that are as good from elsewhere as from the distribution.
declare -A command_of=(
  [g++]=g++ [cmake]=cmake [ninja-build]=ninja [git]=git [pkg-config]=pkg-config
)

say() { printf '%s\n' "$*" >&2; }

installed() {
  [[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null || true)" == installed ]]
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  say "packages: this is neither Debian nor Ubuntu; what is needed, by Debian's names:"
  say "  ${packages[*]} python3 python3-pip"
  exit 0
fi

missing=()
for package in "${packages[@]}"; do
  command="${command_of[$package]:-}"
  if [[ -n "$command" ]] && command -v "$command" >/dev/null; then continue; fi
  installed "$package" || missing+=("$package")
done
# pip fetches the demo model; any Python that has it will do.
python3 -m pip --version >/dev/null 2>&1 || missing+=(python3 python3-pip)

if ((${#missing[@]} == 0)); then
  say "packages: all here"
  exit 0
fi
say "packages: installing ${missing[*]}"
as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null || ! sudo -n true 2>/dev/null; then
    say "packages: run this as root, or allow sudo without a password, or install them yourself:"
    say "  sudo apt-get install ${missing[*]}"
    exit 1
  fi
  as_root=(sudo -n)
fi
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 \
    -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@" >&2
}
apt update
# --no-remove: two versions of Boost exclude each other, and apt would silently take one away.
apt install -y --no-install-recommends --no-remove "${missing[@]}"
