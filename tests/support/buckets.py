"""Buckets of a server that speaks S3, in this process: moto."""

import logging
import os
import uuid
from contextlib import contextmanager
from datetime import timedelta

SECRET = "secret/of+the/bucket"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true", "AWS_SHARED_CREDENTIALS_FILE": os.devnull, "AWS_CONFIG_FILE": os.devnull,
    "AWS_MAX_ATTEMPTS": "1",
}  # fmt: skip
BUCKET = "shared"


@contextmanager
def serving():
    """A server with an empty bucket, as its address."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _backend().create_bucket(BUCKET, "us-east-1")
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


class Place:
    """A prefix of the bucket that no other test uses, seen from behind the server."""

    def __init__(self):
        self.prefix = uuid.uuid4().hex[:8]
        self.url = f"s3://{BUCKET}/{self.prefix}"

    def __iter__(self):
        """The names of its objects."""
        start = f"{self.prefix}/"
        return iter([name.removeprefix(start) for name in _backend().buckets[BUCKET].keys if name.startswith(start)])

    def __getitem__(self, name):
        return _backend().get_object(BUCKET, f"{self.prefix}/{name}").value

    def __setitem__(self, name, content):
        _backend().put_object(BUCKET, f"{self.prefix}/{name}", content)

    def __delitem__(self, name):
        _backend().delete_object(BUCKET, f"{self.prefix}/{name}")

    def named(self, part):
        """The one object whose name contains this."""
        [found] = [name for name in self if part in name]
        return found

    def age(self, name, seconds):
        """Make an object older."""
        key = _backend().get_object(BUCKET, f"{self.prefix}/{name}")
        key.last_modified = key.last_modified - timedelta(seconds=seconds)


def _backend():
    from moto.s3.models import s3_backends

    return s3_backends["123456789012"]["aws"]
