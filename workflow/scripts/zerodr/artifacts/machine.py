"""Turn refusals of the operating system into one sentence each, and end child processes with their parent."""

import ctypes
import errno
import fcntl
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from zerodr.errors import MachineError, ZerodrError

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def die_with_parent() -> None:
    """Ask the kernel to end this process when its parent ends (Linux; elsewhere nothing happens)."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))


FULL = (errno.ENOSPC, errno.EDQUOT)
GONE = (errno.ESTALE, errno.EIO, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN)
REFUSED = (errno.EROFS, errno.EACCES, errno.EPERM)
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
SHORT_WRITE = re.compile(r"\d+ requested and \d+ written")  # numpy gives no error number
RUST_NUMBER = re.compile(r"\(os error (\d+)\)")  # safetensors, tokenizers


class MachineErrors:
    """A context in which each refusal of the operating system ends as one clear error.

    Args:
        name: the stage, for messages without a file.
        outputs: files that it writes; messages report the free space of their file systems.

    Raises:
        MachineError: at the end: the disk is full, its file system is gone, or it may not be written.
    """

    def __init__(self, name: str, outputs: Iterable[str] = ()) -> None:
        self.name, self.outputs = name, outputs

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, ZerodrError):
            if is_refusal(error):
                raise _sentence(
                    number_of(error), getattr(error, "filename", None) or self.name, self.outputs
                ) from error


def is_refusal(error: Exception) -> bool:
    """Test whether the operating system is behind an exception: no space, no file system, no permission."""
    return number_of(error) in (*FULL, *GONE, *REFUSED)


def _sentence(number: int, where: str, outputs: Iterable[str]) -> MachineError:
    again = "run the same command again: it resumes"
    if number in FULL:
        problem, step = f"the disk is full ({_free(outputs)}); nothing was published", f"free space and {again}"
    elif number in GONE:
        problem = f"the file system does not answer any more ({os.strerror(number)})"
        step = f"check that its share is mounted, then {again}"
    elif os.path.exists(where) and not os.access(where, os.R_OK):
        problem, step = f"can't be read ({os.strerror(number)})", "ask its owner for the right to read it"
    else:
        problem = f"can't be written ({os.strerror(number)})"
        step = "make the folder writable or run in another checkout"
    return MachineError(where, problem, step)


def number_of(error: Exception) -> int:
    """Return the system's error number behind an exception of any library; 0 when there is none."""
    text = str(error)
    if isinstance(error, OSError) and error.errno:
        return error.errno
    if match := RUST_NUMBER.search(text):
        return int(match[1])
    if SHORT_WRITE.fullmatch(text):
        return errno.ENOSPC
    return next((code for code in (*FULL, errno.ESTALE) if os.strerror(code) in text), 0)


def _free(outputs: Iterable[str]) -> str:
    """Return the free space of the fullest file system among the folders of `outputs`."""
    folders = [folder if folder.exists() else Path() for folder in (Path(path).parent for path in outputs)]
    return f"{min(shutil.disk_usage(folder).free for folder in folders or [Path()]) // 2**20} MiB free"


def take_lock(stream: IO, wait: bool) -> bool:
    """Lock an open file for this process, until it is closed or the process ends.

    Args:
        wait: for the process that holds it; else return False at once.

    Raises:
        MachineError: the file system has no locks.
    """
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        problem = f"its file system has no locks ({os.strerror(error.errno)})"
        step = "mount it with locks (Lustre: -o flock, NFS: a lock daemon) or move the checkout"
        raise MachineError(stream.name, problem, step) from error
    return True
