"""A SLURM of this machine alone, to try sweeps on: one controller and some `slurmd`, in a temporary folder.

It needs no systemd and no cgroups, has a munge key and ports of its own, listens on 127.0.0.1, and leaves an installed
SLURM alone. As root or as a user; then all jobs run as that user.
"""

from __future__ import annotations

import getpass
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

WAIT_SECONDS = 60.0
NEEDED = {"munged": "munge", "slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "sinfo": "slurm-wlm"}
FOR_ACCOUNTING = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server", "mariadb-install-db": "mariadb-server"}
SEARCH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])  # where daemons are installed

CONF = """\
ClusterName=here
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=20
SchedulerParameters=sched_interval=5,sched_min_interval=1000000
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
{accounting}
{nodes}
PartitionName=here Nodes=ALL Default=YES MaxTime=120 State=UP
PartitionName=staff Nodes=ALL MaxTime=120 State=UP AllowAccounts=staff
"""
ACCOUNTING = """\
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=2
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={dbd}
AccountingStoragePass={folder}/munge.socket
AccountingStorageEnforce=associations
"""
DBD = """\
AuthType=auth/munge
CommunicationParameters=NoInAddrAny
AuthInfo=socket={folder}/munge.socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={dbd}
SlurmUser={user}
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={database}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm
LogFile={folder}/slurmdbd.log
PidFile={folder}/slurmdbd.pid
"""


class NotPossible(Exception):
    """SLURM cannot be set up, with the reason for people."""


@dataclass(frozen=True)
class Place:
    """folder: of this SLURM. nodes: how many `slurmd`."""

    folder: Path
    nodes: int = 2

    @property
    def conf(self) -> Path:
        return self.folder / "slurm.conf"

    @property
    def user(self) -> str:
        return getpass.getuser()

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": SEARCH, "SLURM_CONF": str(self.conf)}

    def ask(self, *command: str) -> subprocess.CompletedProcess[str]:
        """What a command of SLURM answers."""
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=WAIT_SECONDS)

    def start(self, name: str, *command: str) -> None:
        """Start a daemon that stays in the foreground, in a session of its own."""
        with (self.folder / f"{name}.out").open("ab") as out:
            child = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )
        (self.folder / f"{name}.process").write_text(str(child.pid))

    def stop(self, name: str, number: int = signal.SIGTERM) -> None:
        """Send a daemon a signal, and wait for its end; then kill it."""
        file = self.folder / f"{name}.process"
        if not file.is_file():
            return
        pid = int(file.read_text())
        for one in (number, signal.SIGKILL):
            if belongs(pid, self.folder):
                os.kill(pid, one)
            with_patience(lambda: not belongs(pid, self.folder), 20)
        file.unlink()

    def start_node(self, number: int) -> None:
        """Start the `slurmd` of node 1, 2, …"""
        self.start(f"slurmd{number}", found("slurmd"), "-D", "-N", f"n{number}", "-f", str(self.conf))

    def start_controller(self) -> None:
        self.start("slurmctld", found("slurmctld"), "-D", "-f", str(self.conf))

    def idle(self) -> bool:
        """Whether all nodes wait for work."""
        states = self.ask("sinfo", "-h", "-N", "-p", "here", "-o", "%t").stdout.split()
        return len(states) == self.nodes and set(states) == {"idle"}


def up(place: Place, accounting: bool) -> None:
    """Set up and start everything; wait until all nodes are idle. NotPossible with the reason."""
    check(accounting)
    down(place)
    place.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    (place.folder / "state").mkdir(mode=0o700)
    write_configs(place, accounting)
    munge(place)
    if accounting:
        start_accounting(place)
    place.start_controller()
    for number in range(1, place.nodes + 1):
        place.start_node(number)
    if not with_patience(place.idle, WAIT_SECONDS):
        raise NotPossible(f"The nodes are not idle after {WAIT_SECONDS:.0f} s. Logs: {place.folder}/*.log and *.out")
    if accounting:
        add_accounts(place)


def check(accounting: bool) -> None:
    """NotPossible if a program is missing."""
    programs = NEEDED | (FOR_ACCOUNTING if accounting else {})
    packages = sorted({package for program, package in programs.items() if not shutil.which(program, path=SEARCH)})
    if packages:
        raise NotPossible(f"Missing: {', '.join(packages)}. Install: apt-get install {' '.join(packages)}")


def write_configs(place: Place, accounting: bool) -> None:
    free = ports(place.nodes + 3)
    values = {"folder": place.folder, "user": place.user, "controller": next(free)}
    nodes = [
        f"NodeName=n{number} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={next(free)} CPUs=1 "
        "RealMemory=4000 State=UNKNOWN"
        for number in range(1, place.nodes + 1)
    ]
    values |= {"dbd": next(free), "database": next(free), "password": secrets.token_hex(16)}
    text = CONF.format(
        nodes="\n".join(nodes),
        accounting=ACCOUNTING.format(**values) if accounting else "AccountingStorageType=accounting_storage/none",
        **values,
    )
    place.conf.write_text(text)
    if accounting:
        (place.folder / "database_port").write_text(f"{values['database']} {values['password']}")
        secret = place.folder / "slurmdbd.conf"
        secret.touch(mode=0o600)
        secret.write_text(DBD.format(**values))


def munge(place: Place) -> None:
    """The daemon that signs the messages between the others, with a key of its own."""
    key = place.folder / "munge.key"
    key.touch(mode=0o400)
    key.chmod(0o600)
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    kinds = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    files = [f"--{option}={place.folder}/munge.{ending}" for option, ending in kinds.items()]
    place.start("munged", found("munged"), "--foreground", "--force", f"--key-file={key}", *files)
    if not with_patience((place.folder / "munge.socket").is_socket, WAIT_SECONDS):
        raise NotPossible(f"munged does not start: see {place.folder}/munged.out")


def start_accounting(place: Place) -> None:
    """MariaDB and slurmdbd."""
    port, password = (place.folder / "database_port").read_text().split()
    data, sock = place.folder / "database", place.folder / "mariadb.socket"
    made = subprocess.run(
        [found("mariadb-install-db"), "--no-defaults", f"--datadir={data}", f"--user={place.user}",
         "--auth-root-authentication-method=normal", "--skip-test-db"],
        capture_output=True, text=True,
    )  # fmt: skip
    if made.returncode:
        raise NotPossible(f"mariadb-install-db failed: {made.stdout}{made.stderr}")
    place.start(
        "mariadbd", found("mariadbd"), "--no-defaults", f"--datadir={data}", f"--socket={sock}", f"--user={place.user}",
        "--bind-address=127.0.0.1", f"--port={port}", "--innodb-buffer-pool-size=64M",
        "--innodb-lock-wait-timeout=900", f"--pid-file={place.folder}/mariadb.pid",
    )  # fmt: skip
    users = [f"slurm@'{host}'" for host in ("127.0.0.1", "localhost")]
    grants = "".join(f"CREATE USER {u} IDENTIFIED BY '{password}'; GRANT ALL ON slurm.* TO {u};" for u in users)

    def ready() -> bool:
        client = [found("mariadb"), "--no-defaults", f"--socket={sock}", "-u", "root"]
        return (
            subprocess.run(
                client, input=f"CREATE DATABASE IF NOT EXISTS slurm; {grants}", capture_output=True, text=True
            ).returncode
            == 0
        )

    if not with_patience(ready, WAIT_SECONDS):
        raise NotPossible(f"MariaDB does not start: see {place.folder}/mariadbd.out")
    place.start("slurmdbd", found("slurmdbd"), "-D")  # it looks for slurmdbd.conf beside slurm.conf
    if not with_patience(lambda: place.ask("sacctmgr", "-n", "list", "cluster").returncode == 0, WAIT_SECONDS):
        raise NotPossible(f"slurmdbd does not start: see {place.folder}/slurmdbd.log and slurmdbd.out")


def add_accounts(place: Place) -> None:
    """The user has an account; `staff` is one that the user is no member of."""
    for words in (
        ["account", "sweeps", "cluster=here"],
        ["account", "staff", "cluster=here"],
        ["user", place.user, "account=sweeps", "cluster=here"],
    ):
        place.ask("sacctmgr", "-i", "add", *words)


def down(place: Place) -> None:
    """Stop everything and remove the folder."""
    if not place.conf.is_file():
        if place.folder.exists() and any(place.folder.iterdir()):
            raise NotPossible(f"{place.folder} is no folder of this script: give another --folder.")
        return
    place.ask("scancel", f"--user={place.user}")
    end_steps(place)
    nodes = [file.stem for file in place.folder.glob("slurmd*.process") if file.stem != "slurmdbd"]
    for name in [*nodes, "slurmctld", "slurmdbd", "mariadbd", "munged"]:
        place.stop(name)
    end_steps(place)  # of jobs that began meanwhile
    shutil.rmtree(place.folder)


def end_steps(place: Place) -> None:
    """Kill what runs in jobs: it outlives the `slurmd` that started it."""
    for step in steps(place):
        for pid in (*descendants(step), step):
            kill(pid)


def steps(place: Place) -> list[int]:
    """Processes `slurmstepd` of this SLURM, one for each step of a job."""
    return [pid for pid in processes() if content(pid, "comm").startswith("slurmstepd") and belongs(pid, place.folder)]


def belongs(pid: int, folder: Path) -> bool:
    """Whether a process lives and was started here. A zombie does not live."""
    if content(pid, "stat").rpartition(")")[2].split()[:1] in ([], ["Z"]):
        return False
    return f"SLURM_CONF={folder / 'slurm.conf'}" in content(pid, "environ").split("\0")


def descendants(pid: int) -> list[int]:
    """The processes below one, the deepest first."""
    parents = {one: content(one, "stat").rpartition(")")[2].split() for one in processes()}
    children = [one for one, fields in parents.items() if fields[1:2] == [str(pid)]]
    return [below for child in children for below in (*descendants(child), child)]


def processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def content(pid: int, file: str) -> str:
    """A file of a process; "" if it has ended or is another user's."""
    try:
        return Path(f"/proc/{pid}/{file}").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def ports(count: int) -> Iterator[int]:
    """Free ports."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    numbers = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return iter(numbers)


def found(program: str) -> str:
    return shutil.which(program, path=SEARCH) or program


def with_patience(true: Callable[[], bool], seconds: float) -> bool:
    """Whether something becomes true in that time."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


FOLDER = Path(tempfile.gettempdir()) / f"slurm_here_{getpass.getuser()}"


def slurm_here(
    action: Literal["up", "env", "down"], *, accounting: bool = False, nodes: int = 2, folder: Path = FOLDER
) -> None:
    """Set up a SLURM of this machine alone, to try sweeps on.

    apt-get install slurm-wlm munge                                 # and slurmdbd mariadb-server for --accounting
    python scripts/faults.py slurm_here up                          # two nodes, no accounting; anew if it runs already
    python scripts/faults.py slurm_here up --accounting --nodes=3   # with slurmdbd and MariaDB
    eval "$(python scripts/faults.py slurm_here env)"               # SLURM_CONF, for sinfo, sbatch and `harness sweep`
    python scripts/faults.py slurm_here down

    --folder allows several side by side, also for `env` and `down`.
    """
    place = Place(folder.absolute(), nodes)
    try:
        if action == "up":
            up(place, accounting)
            print(place.ask("sinfo").stdout, file=sys.stderr)
        elif action == "down":
            down(place)
            return
        elif not place.conf.is_file():
            raise NotPossible(f"There is no SLURM in {place.folder}: python scripts/faults.py slurm_here up")
    except NotPossible as error:
        sys.exit(str(error))
    print(f"export SLURM_CONF={place.conf}")
