#!/usr/bin/env bash
# Installs Azurite, Azure's own emulator of its storage, into .azurite by npm. The tests against Azure call it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=3.35.0
stamp=.azurite/.version

[[ -f $stamp && $(<"$stamp") == "$version" ]] && exit 0
command -v npm >/dev/null || { echo "there is no npm on the PATH; Azurite needs Node.js 20 or newer" >&2; exit 1; }
rm -rf .azurite
mkdir .azurite
timeout 300 npm install --prefix .azurite --no-audit --no-fund --loglevel=error "azurite@$version" >&2
echo "$version" >"$stamp"
