"""Runs a module as a worker: ``python -m autotune.workers.launch MODULE``.

Importing the module takes a while, and its parent may be killed meanwhile: what is done here comes first.
"""

from __future__ import annotations

import runpy
import sys

from autotune.workers.lifetime import die_with_parent


def main() -> None:
    """Tie this process to its parent, then become the module that the first argument names."""
    die_with_parent()
    name = sys.argv.pop(1)
    runpy.run_module(name, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

__all__ = ["main"]
