"""Run a command beside a Milvus server of its own, which nothing outside can reach.

    python scripts/milvus_server.py pytest -n0 tests/retrievers/test_milvus.py
    python scripts/milvus_server.py harness run retriever=dense encoder=lsa index=milvus
    python scripts/milvus_server.py --login bash     # asks for HARNESS_MILVUS_TOKEN, which is set
    python scripts/milvus_server.py --data FOLDER harness ...   # keeps its collections there

The server is that of the wheel `milvus` (2.3.5, for Linux on x86-64), installed into a virtual environment of its own
the first time. It listens on all interfaces and asks for no password by default: so server and command run in a new
network namespace, which has only its own loopback, and the command reaches nothing else. HARNESS_MILVUS_URI and
HARNESS_TEST_MILVUS are set for it. Needs `unshare` and the right to make namespaces. Starting takes 3 to 90 s.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

WHEEL = "milvus==2.3.5"
PLACE = Path.home() / ".cache" / "retrieval-harness" / WHEEL.replace("==", "-")
URI = "http://127.0.0.1:19530"
LOGIN = "root:Milvus"  # the one that a new server has
READY = 300  # seconds in which the server must answer; after a kill it took 83 s here
BRING_UP, UP_AND_RUNNING = 0x8914, 0x41  # SIOCSIFFLAGS, IFF_UP | IFF_RUNNING


class Server:
    """A Milvus server of this machine.

    data: its folder. place: its virtual environment. login: whether it asks for a user.
    """

    def __init__(self, data: Path, place: Path, login: bool = False) -> None:
        self._data, self._login = data, login
        self._program = place / "bin" / "milvus-server"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start it and wait until it answers; returns the seconds it took."""
        began = time.monotonic()
        while not _free() and time.monotonic() - began < READY:
            time.sleep(0.2)
        words = [str(self._program), "--data", str(self._data), "--proxy-port", "19530"]
        words += ["--authorization-enabled", "true"] if self._login else []
        with (self._data / "server.log").open("ab") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        while not _answers(LOGIN if self._login else ""):
            if self._process.poll() is not None or time.monotonic() - began > READY:
                self.kill()
                raise SystemExit(f"the server did not start; its logs are in {self._data / 'logs'}")
            time.sleep(0.2)
        return time.monotonic() - began

    def kill(self) -> None:
        """As if the machine had failed."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


def _free() -> bool:
    """Whether its port can be taken: for a minute after a kill it cannot, and the server would take another one."""
    with socket.socket() as asked, contextlib.suppress(OSError):
        asked.bind(("127.0.0.1", 19530))
        return True
    return False


def _answers(token: str) -> bool:
    """Whether the server answers a question that needs all of it. Asked by another process: a client that was refused
    once waits longer and longer."""
    code = (
        "import sys\nfrom pymilvus import MilvusClient\n"
        "MilvusClient(sys.argv[1], token=sys.argv[2], timeout=5).list_collections(timeout=5)"
    )
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", 19530), timeout=1):
        asked = subprocess.run([sys.executable, "-c", code, URI, token], capture_output=True, check=False)
        return asked.returncode == 0
    return False


@contextlib.contextmanager
def serving(data: Path | None, place: Path, login: bool = False) -> Iterator[Server]:
    """A server in this network namespace; its data are removed at the end unless a folder is given."""
    with contextlib.ExitStack() as stack:
        folder = data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="milvus-")))
        folder.mkdir(parents=True, exist_ok=True)
        server = Server(folder, place, login)
        stack.callback(server.stop)
        print(f"Milvus answers at {URI} after {server.start():.0f} s", file=sys.stderr)
        yield server


def isolated(script: Path, words: Sequence[str], place: Path = PLACE) -> int:
    """Run `script --inside WORDS` in a network namespace of its own, with the server's wheel installed."""
    if not (place / "bin" / "milvus-server").exists():
        print(f"installing {WHEEL} into {place}, once", file=sys.stderr)
        venv.create(place, with_pip=True)
        subprocess.run([place / "bin" / "python", "-m", "pip", "install", "--quiet", WHEEL], check=True)
    own = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--net", "--map-root-user"]
    if subprocess.run([*own, "true"], capture_output=True, check=False).returncode:
        raise SystemExit("`unshare --net` is not allowed here, and the server is not to be reached from outside.")
    return subprocess.run([*own, sys.executable, str(script), "--inside", *words], check=False).returncode


def bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        fcntl.ioctl(asked, BRING_UP, struct.pack("16sh22x", b"lo", UP_AND_RUNNING))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder that keeps the server's data; default: removed at the end")
    parser.add_argument("--place", type=Path, default=PLACE, help="virtual environment of the server")
    parser.add_argument("--login", action="store_true", help="the server asks for a user and a password")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    if not args.command:
        parser.error("give a command")
    if not args.inside:
        return isolated(Path(__file__), sys.argv[1:], args.place)
    bring_up_loopback()
    with serving(args.data, args.place, args.login):
        set_here = {"HARNESS_MILVUS_URI": URI, "HARNESS_TEST_MILVUS": URI}
        login = {"HARNESS_MILVUS_TOKEN": LOGIN} if args.login else {}
        return subprocess.run(args.command, env=os.environ | set_here | login, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
