"""Settings, which are never tuned: paths and dumps. Everything tuned is a knob (see ``search_spaces``).

Each field has an environment name that derives from the field: ``AUTOTUNE_`` and the name in capitals.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """Settings of the process; :func:`current` reads them from the environment."""

    dump: str = ""
    """Folder that receives the IR after every pass; empty for none."""
    kernels: str = ""
    """Modules that register library kernels, separated by commas; every process of a job imports them."""
    operators: str = ""
    """Modules that define operators, separated by commas, beside those of installed packages."""
    home: str = ""
    """Folder of the default database, the cost models and a cache; empty for the platform's data and cache folders."""
    builders: str = ""
    """Processes that compile a large model together, from 1; empty for one a usable core."""
    config: str = ""
    """File of defaults of the command line's options; empty for the nearest ``autotune.toml``."""
    host: str = ""
    """Named level, such as x86-64-v3, that this machine counts as; empty for what it is."""
    machine: str = ""
    """``table`` for what the cost model's table says of this machine's processor; empty for what is measured of it."""

    defaults: str = ""
    """``anew`` to choose every default schedule by a search; the absolute path of a folder to keep those that were
    chosen in it; empty to keep them in the cache folder."""
    opencl_memory: str = ""
    """``own`` for OpenCL devices that are processors to have memory of their own, as GPUs have; empty to share this
    process's where their driver can."""
    locks: str = ""
    """Folder of the lock by which jobs measure one at a time; empty for ``/tmp``, which all of a machine share."""
    slowdown: str = ""
    """For tests: CPU and OpenCL devices that take so many times as long as they would, ``cpu:0=4,cpu:1=2``."""

    @classmethod
    def from_environment(cls) -> Settings:
        """Read every field that is set in the environment."""
        names = {field.name: environment_name(field.name) for field in fields(cls)}
        return cls(**{k: os.environ[v] for k, v in names.items() if v in os.environ})

    def home_path(self) -> Path:
        """Return the folder of the default database and the cost models (not created here)."""
        if self.home:
            return Path(self.home)
        import platformdirs

        return Path(platformdirs.user_data_dir("autotune", appauthor=False))

    def cache_path(self) -> Path:
        """Return the folder of what can be worked out again (not created here)."""
        if self.home:
            return Path(self.home) / "cache"
        import platformdirs

        return Path(platformdirs.user_cache_dir("autotune", appauthor=False))


def environment_name(field: str) -> str:
    """Return the name of the environment variable of a settings field.

    >>> environment_name("home")
    'AUTOTUNE_HOME'
    """
    return "AUTOTUNE_" + field.upper()


def current() -> Settings:
    """Return the settings of this process, from its environment now."""
    return Settings.from_environment()


__all__ = ["Settings", "current", "environment_name"]
