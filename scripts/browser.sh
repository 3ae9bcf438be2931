#!/usr/bin/env bash
# Finds a Chromium for the tests of the live page, or gets one: Playwright's own, else the distribution's.
# Where there is none to be had, these tests are skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'browser: %s\n' "$*" >&2; }
as_root() {
    if [[ $(id -u) == 0 ]]; then "$@"; else sudo -n "$@"; fi
}
find_browser() { .venv/bin/python -c 'from tests.support.browser import find_chromium; raise SystemExit(find_chromium() is None)'; }

find_browser && exit
say "getting a Chromium for the tests of the live page"
timeout 300 .venv/bin/python -m playwright install chromium-headless-shell >/dev/null 2>&1 || true
find_browser && exit
if command -v apt-get >/dev/null && { [[ $(id -u) == 0 ]] || sudo -n true 2>/dev/null; }; then
    as_root apt-get update -qq >&2 || true # a stale list may still do
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >&2 || true
fi
find_browser || say "there is none to be had: the tests in a browser are skipped"
