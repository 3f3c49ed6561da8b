"""One compilation in a process of its own: ``worker_compile.py MODEL ROWS ARTIFACT`` prints memory and time as JSON.

Memory is what the kernel counts for the process, sampled a hundred times a second: ``anonymous`` is held by nothing
else, ``file`` are mapped pages of files, code and weights, given up where memory is short; ``resident`` is both.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage

import autotune

_COUNTED = {"RssAnon": "anonymous", "RssFile": "file", "VmRSS": "resident"}


class _Watch(threading.Thread):
    """Keeps the peak of each."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = dict.fromkeys(_COUNTED.values(), 0)

    def run(self) -> None:
        while True:
            for line in Path("/proc/self/status").read_text().splitlines():
                name, _, value = line.partition(":")
                if name in _COUNTED:
                    key = _COUNTED[name]
                    self.peak[key] = max(self.peak[key], 1024 * int(value.split()[0]))
            time.sleep(0.01)


def main() -> None:
    """Compile, and tell."""
    model, rows, artifact = sys.argv[1:]
    watch = _Watch()
    watch.start()
    compiled = autotune.compile(model, shapes={"sequence_length": int(rows)}, threads=2)
    compiled.save(artifact)
    used = [getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    processor = sum(each.ru_utime + each.ru_stime for each in used)
    print(json.dumps({**watch.peak, "processor": processor}), flush=True)


if __name__ == "__main__":
    main()
