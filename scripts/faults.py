"""Disturb a command at a random moment, run it again, and compare with an undisturbed run.

python scripts/faults.py --minutes 60                       # every command in every way
python scripts/faults.py --only run/sigterm/3 --seed 0      # one of these cases again
python scripts/faults.py ray --victim worker --kills 3      # kills while a Ray cluster works
"""

from __future__ import annotations

import sys

from measuring import run_case

CASES = {
    "commands": "faulting.campaign:commands",
    "ray": "faulting.kills:ray",
    "sweeps": "faulting.kills:sweeps",
    "store": "faulting.kills:store",
    "slurm_here": "faulting.kills:slurm_here",
}

if __name__ == "__main__":
    words = sys.argv[1:]
    plain = words[:1] not in (["-h"], ["--help"]) and (not words or words[0].startswith("-"))
    sys.exit(run_case(CASES, ["commands", *words] if plain else words, __doc__))
