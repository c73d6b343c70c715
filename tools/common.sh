# Copyright: mission_control.job_recovery contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# shellcheck shell=bash
# Sourced by the scripts beside it: where the checkout and the cache are, how to say things, and --help, for which they
# show the text at their top.

CHECKOUT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
CACHE=${JOB_RECOVERY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/mission-control-job-recovery}
export CHECKOUT CACHE

if [ "${1-}" = --help ] || [ "${1-}" = -h ]; then
    sed -n '6,/^[^#]/s/^# \{0,1\}//p' "$CHECKOUT/tools/${0##*/}"
    exit 0
fi

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }

die() {
    say "$*"
    exit 1
}

# Prints the first Python that the tools run on. pyenv's shims exist for versions that then refuse to start,
# therefore each one is run and not only looked up.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    die "Python 3.11, 3.12 or 3.13 is needed and was not found; install one, or name it: PYTHON=/path/to/python3.11"
}

# key FILE...: a short key made of the files' content and of the words in $KEY_WORDS.
key() {
    { printf '%s\n' "${KEY_WORDS:-}" && cat -- "$@"; } | sha256sum | cut -c 1-16
}

# cached FOLDER: makes a folder of the cache by the caller's `fetch FOLDER`, unless it is there and `usable FOLDER` says
# yes. It appears complete or not at all, and two checkouts do not fetch it at once.
cached() {
    if usable "$1"; then return; fi
    mkdir -p "$CACHE"
    (
        exec 9>"$1.lock"
        flock 9
        if usable "$1"; then exit; fi
        folder=$(mktemp -d "$1-XXXXXX")
        trap 'rm -rf -- "$folder"' EXIT
        fetch "$folder"
        usable "$folder" || die "what was fetched for $1 does not work"
        rm -rf -- "$1"
        mv -T -- "$folder" "$1"
    )
}
