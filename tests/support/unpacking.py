"""What the page of a board carries packed, read as a browser reads it."""

import base64
import zlib

import numpy as np


def unpacked(text):
    """The bytes of a packed text: base64 of raw deflate."""
    return zlib.decompress(base64.b64decode(text), wbits=-15)


def unpacked_places(content):
    """The numbers that `packed_places` packed, int64."""
    return np.frombuffer(unpacked(content["data"]), f"<u{content['bits'] // 8}").astype(np.int64)
