#!/bin/sh
# Create or update an environment: `scripts/setup.sh base` or `dev`, in .venv or in the folder that comes second.
# Called by the Makefile; it removes nothing.
set -eu
cd "$(dirname "$0")/.."
what=$1
venv=${2:-.venv}
python=${PYTHON:-python3}
need_mb=2500
[ "$what" = base ] || need_mb=5000

stop() { echo "setup: $1" >&2; exit 1; }

command -v "$python" >/dev/null 2>&1 || stop "there is no '$python'. Install Python 3.11 or newer, or set PYTHON=/path/to/python3.11."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    stop "$("$python" --version) is too old: 3.11 or newer is needed. Set PYTHON=/path/to/a/newer/python."

if [ ! -x "$venv/bin/python" ]; then
    free_mb=$(df -Pm . | awk 'NR == 2 { print $4 }')
    [ "$free_mb" -ge "$need_mb" ] || stop "only $free_mb MB free here, about $need_mb MB are needed. Free some space."
    echo "setup: creating $venv with $("$python" --version)" >&2
    "$python" -m venv "$venv" || stop "'$python -m venv' failed. On Debian and Ubuntu: apt-get install python3-venv."
fi

extra=""
size="about 110 packages, a download of about 300 MB, 1.3 GB on disk; usually 1 to 3 minutes"
if [ "$what" != base ]; then
    extra="[$what]"
    size="about 240 packages, 3 to 5 GB on disk; usually 3 to 10 minutes"
fi
echo "setup: downloading what retrieval-harness$extra needs into $venv, only once ($size)" >&2
log=$venv/setup.log
: >"$log"
{
    "$venv/bin/python" -m pip install --progress-bar off --disable-pip-version-check -c constraints.txt -e ".$extra" 2>&1 &&
        echo "pip is done"  # a pipe hides the status of all but its last command
} | while IFS= read -r line; do
    printf '%s\n' "$line" >>"$log"
    case $line in
    "Installing collected packages: "*)
        packages=$(printf '%s' "$line" | tr -cd , | wc -c)
        echo "setup: all is downloaded; installing $((packages + 1)) packages" >&2
        ;;
    esac
done
[ "$(tail -n 1 "$log")" = "pip is done" ] || {
    grep -Ev '^(WARNING|Collecting|Processing|Installing collected|Requirement already|  (Downloading|Using cached))' "$log" | tail -n 20 >&2
    grep -qi 'no space left' "$log" && stop "the disk is full. Free about $need_mb MB and run this again."
    stop "pip failed; its full output is in $log. Fix the cause and run this again."
}
echo "setup: compiling, so that the first commands need not (up to a minute)" >&2
"$venv/bin/python" -m compileall -q harness retrievers >>"$log" 2>&1 || true
"$venv/bin/python" -P -m harness.storage.kernels >>"$log" 2>&1 || true
touch "$venv/.$what"
[ "$what" = base ] || touch "$venv/.base"
echo "setup: done" >&2
