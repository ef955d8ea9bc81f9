"""Files in .xz, checked to their last byte.

Python's own reader takes damage behind the first stream of a file for something that does not belong to it, and passes
over it in silence; padding between streams it does not read past.
"""

import io
import lzma
from pathlib import Path

_PACKED_BYTES = 1 << 18


class XzFile(io.RawIOBase):
    """The unpacked bytes of all streams of an .xz file.

    Reading raises LZMAError for damage, and EOFError for a file that is cut off.
    """

    def __init__(self, path: Path) -> None:
        self._file = open(path, "rb")
        self._stream: lzma.LZMADecompressor | None = None  # None: between two streams
        self._packed = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        while self._stream is not None or self._next_stream():
            if self._stream.needs_input and not self._packed:
                self._packed = self._file.read(_PACKED_BYTES)
                if not self._packed:
                    raise EOFError("compressed file ended before the end-of-stream marker was reached")
            unpacked = self._stream.decompress(self._packed, len(buffer))
            self._packed = b""  # what was not unpacked yet, the stream keeps
            if self._stream.eof:
                self._stream, self._packed = None, self._stream.unused_data
            if unpacked:
                buffer[: len(unpacked)] = unpacked
                return len(unpacked)
        return 0

    def _next_stream(self) -> bool:
        """Returns whether there is another stream, and passes over the padding before it: zeros, in fours."""
        padding = 0
        while packed := self._packed or self._file.read(_PACKED_BYTES):
            self._packed = packed.lstrip(b"\0")
            padding += len(packed) - len(self._packed)
            if self._packed:
                break
        if padding % 4:
            raise lzma.LZMAError(f"damaged between two streams: {padding} bytes of zeros, which must be fours")
        if self._packed:
            self._stream = lzma.LZMADecompressor()
        return bool(self._packed)

    def close(self) -> None:
        self._file.close()
        super().close()
