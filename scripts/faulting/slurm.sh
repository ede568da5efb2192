#!/bin/bash
# SLURM's commands on one machine, for a folder whose bin/sbatch, squeue, sacct, scancel and srun are links to this file.
# queue/JOB says where a job, or an element of an array, is, as squeue prints it. Two nodes run one each at a time.
# While there is a file `down`, the controller does not answer.
here=$(dirname "$0")/..
name=$(basename "$0")
if [ "$name" != srun ] && [ -e "$here/down" ]; then
    echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2
    exit 1
fi
node() { # NAME SCRIPT JOB...: run the jobs that no other node has taken
    node=$1 script=$2
    shift 2
    for job; do
        mkdir "$here/taken/$job" 2>/dev/null && grep -q PENDING "$here/queue/$job" || continue
        array="SLURM_ARRAY_JOB_ID=${job%_*} SLURM_ARRAY_TASK_ID=${job#*_}"
        [ "$job" != "${job%_*}" ] || array=
        env SLURM_JOB_ID="$job" $array SLURM_JOB_NODELIST="$node" SLURM_NTASKS=1 SLURM_JOB_NUM_NODES=1 SLURM_NODEID=0 \
            SLURM_PROCID=0 SLURM_LOCALID=0 setsid bash "$script" &
        echo $! >"$here/taken/$job/pid"
        echo "RUNNING|$node|None" >"$here/queue/$job"
        wait $! && state=COMPLETED || state=FAILED
        while kill -0 "-$!" 2>/dev/null; do sleep 0.1; done
        sed -i "s/RUNNING/$state/" "$here/queue/$job"
    done
}
case $name in
sbatch)
    case "$*" in *--test-only*) exit ;; esac
    for script; do :; done
    job=$(($(ls "$here/scripts" | wc -l) + 1))
    cp "$script" "$here/scripts/$job"
    jobs=$(sed -n 's/^#SBATCH --array=\([0-9]*\)-\([0-9]*\).*/seq \1 \2/p' "$script" | sh | sed "s/^/${job}_/")
    for one in ${jobs:=$job}; do echo "PENDING||Resources" >"$here/queue/$one"; done
    for one in n1 n2; do node $one "$here/scripts/$job" $jobs </dev/null >/dev/null 2>&1 & done
    echo "Submitted batch job $job"
    ;;
squeue)
    job=$(echo "$*" | sed -n 's/.*--jobs=\([0-9]*\).*/\1/p')
    for file in "$here/queue/$job" "$here/queue/${job}"_*; do [ ! -e "$file" ] || echo "$(basename "$file")|$(cat "$file")"; done
    ;;
scancel)
    for file in "$here/queue/$1" "$here/queue/$1"_*; do
        [ -e "$file" ] && grep -qE "PENDING|RUNNING" "$file" || continue
        sed -i "s/PENDING\|RUNNING/CANCELLED/" "$file"
        pid=$(cat "$here/taken/$(basename "$file")/pid" 2>/dev/null) && kill -TERM "-$pid"
    done
    ;;
sacct)
    echo "Slurm accounting storage is disabled" >&2
    exit 1
    ;;
srun)
    named() { echo "$1" | sed "s/%A_%a/$SLURM_JOB_ID/; s/%j/$SLURM_JOB_ID/; s/%t/0/"; }
    [ "$1 $2 $4" = "--unbuffered --output --error" ] || exit 2
    out=$(named "$3") err=$(named "$5")
    shift 5
    exec "$@" >>"$out" 2>>"$err"
    ;;
esac
