"""Who takes part: our own runtime, and peers that are looked for where they may be installed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.distribution import install
from autotune.errors import MissingExtraError, UsageError
from autotune.suggest import did_you_mean
from autotune.workers.process import python_module

_WORKER = Path(__file__).with_name("worker.py")
_OWN = python_module("autotune.bench.worker")
_FIND = "import importlib.util as u, json, sys; print(json.dumps([u.find_spec(m) is not None for m in sys.argv[1:]]))"


@dataclass(frozen=True)
class System:
    """Something that can run a model in a worker process.

    ``form`` says which form of a model it loads: ``atm``, ``onnx``, ``recipe`` (of the ONNX model), ``graph``
    (a recipe of our graph, in our layout) or ``bytes``. ``threads_variable`` is the environment variable that
    sets its threads, where a call does not. One that ``tunes`` is tuned before it is loaded.
    """

    name: str
    label: str
    form: str
    command: tuple[str, ...]
    threads_variable: str = ""
    tunes: bool = False
    kind: str = "peer"
    """A ``floor`` is no peer: a bound that nobody goes below."""

    def environment(self, threads: int) -> dict[str, str]:
        """Return the variables that its worker's environment must have."""
        return {self.threads_variable: str(threads)} if self.threads_variable else {}


@dataclass(frozen=True)
class _Peer:
    """``modules``: what must be installed; for none the module of its name.

    One that is ``elsewhere`` is looked for in the environments of ``--peer-python`` only.
    """

    label: str
    form: str
    install: str
    modules: tuple[str, ...] = ()
    threads_variable: str = ""
    tunes: bool = False
    elsewhere: bool = False


PEERS: Mapping[str, _Peer] = {
    "onnxruntime": _Peer("ONNX Runtime", "onnx", install("peers")),
    "openvino": _Peer("OpenVINO", "onnx", install("peers")),
    "openvino-default": _Peer("OpenVINO, its own precision", "onnx", install("peers"), ("openvino",)),
    "torch": _Peer("PyTorch eager", "recipe", "pip install torch"),
    "metaschedule": _Peer(
        "MetaSchedule",
        "graph",
        "pip install apache-tvm==0.27.0 apache-tvm-ffi==0.1.14.post0 xgboost psutil cloudpickle",
        ("tvm", "xgboost", "psutil", "cloudpickle"),
        "TVM_NUM_THREADS",
        tunes=True,
    ),
    "earlier": _Peer(
        "autotune, other version",
        "graph",
        "pip install of that version into an environment of its own",
        ("autotune",),
        elsewhere=True,
    ),
}
"""The systems that are compared with us, by name."""

OURS = System("autotune", "autotune", "atm", (*_OWN, "autotune"))
OPENBLAS = System("numpy", "OpenBLAS (NumPy)", "bytes", (*_OWN, "numpy"), "OPENBLAS_NUM_THREADS")
COPY = System("copy", "copy", "bytes", (*_OWN, "copy"), kind="floor")


def find_peers(names: Sequence[str], pythons: Sequence[str | Path] = ()) -> list[System]:
    """The named peers, each in this environment or the first of ``pythons`` that has it.

    Raises UsageError for a name that is not known or an interpreter that does not run, and
    MissingExtraError for a peer that is installed nowhere.
    """
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        near = did_you_mean(unknown[0], PEERS)
        raise UsageError(f"unknown peer {unknown[0]!r}; known peers: {', '.join(PEERS)}, or none{near}")
    if not names:
        return []
    modules = sorted({module for name in names for module in _modules(name)})
    places = {str(python): _installed(str(python), modules) for python in (sys.executable, *pythons)}
    return [_system(name, places) for name in names]


def _modules(name: str) -> tuple[str, ...]:
    return PEERS[name].modules or (name,)


def _system(name: str, places: Mapping[str, Mapping[str, bool]]) -> System:
    peer = PEERS[name]
    for python, has in places.items():
        if peer.elsewhere and python == sys.executable:
            continue
        if all(has[module] for module in _modules(name)):
            command = (python, "-I", str(_WORKER), name)
            return System(name, peer.label, peer.form, command, peer.threads_variable, peer.tunes)
    raise MissingExtraError(
        f"{peer.label} is not installed here; install it with {peer.install}, or in an environment of "
        "its own that you name with --peer-python, or leave it out with --peers"
    )


def _installed(python: str, modules: Sequence[str]) -> dict[str, bool]:
    try:
        done = subprocess.run(
            [python, "-I", "-c", _FIND, *modules], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"cannot run the Python interpreter {python}: {error}") from error
    return dict(zip(modules, json.loads(done.stdout), strict=True))


__all__ = ["COPY", "OPENBLAS", "OURS", "PEERS", "System", "find_peers"]
