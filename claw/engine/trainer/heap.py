"""How the C library hands freed memory back, where a step's memory matters more than its time.

glibc keeps freed blocks of up to 32 MB in its heap, and blocks that are still in use lie between
them: a step on a CPU was seen to hold three times the memory that its tensors need.
"""

import ctypes
import sys

M_MMAP_THRESHOLD = -3
"""of malloc.h: blocks from this size on are mappings of their own, which free() gives back"""
LARGE_BYTES = 1 << 20


def give_back() -> bool:
    """From now on blocks of a megabyte and more go back when they are freed.

    Each of them is then cleared by the kernel when it is taken again, which made a step on a CPU a
    quarter slower (docs/cards.md). Returns whether this C library can.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return bool(mallopt and mallopt(M_MMAP_THRESHOLD, LARGE_BYTES))
