"""Addresses for tests of Milvus: servers that refuse a client, and milvus-lite as a server."""

import base64
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from raw_server import RawServer


@contextmanager
def guarded(token):
    """The address of a server that answers who has the token, with its version and nothing else."""
    import grpc
    from pymilvus.grpc_gen import common_pb2, milvus_pb2, milvus_pb2_grpc

    expected = base64.b64encode(token.encode()).decode()

    class Guarded(milvus_pb2_grpc.MilvusServiceServicer):
        def _check(self, context):
            if dict(context.invocation_metadata()).get("authorization") != expected:
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "auth check failure, please check username and password")

        def Connect(self, request, context):
            self._check(context)
            return milvus_pb2.ConnectResponse(status=common_pb2.Status(), identifier=1)

        def GetVersion(self, request, context):
            self._check(context)
            return milvus_pb2.GetVersionResponse(status=common_pb2.Status(), version="v2.5.0")

    server = grpc.server(ThreadPoolExecutor(2))
    milvus_pb2_grpc.add_MilvusServiceServicer_to_server(Guarded(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop(0)


@contextmanager
def closed():
    """An address at which nothing listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{unused.getsockname()[1]}"


@contextmanager
def answering():
    """An address that answers, but not as Milvus."""
    with RawServer(lambda wire: wire.send(b"HTTP/1.1 501 No\r\nContent-Length: 0\r\n\r\n")) as server:
        yield server.url.removesuffix("/search")


@contextmanager
def lite_server(folder):
    """The address of a milvus-lite that is reached as a server is: the client sends it a token, which it ignores."""
    from milvus_lite.adapter.grpc.server import start_server_in_thread

    server, database, port = start_server_in_thread(data_dir=str(folder), host="127.0.0.1", port=0)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop(0)
        database.close()
