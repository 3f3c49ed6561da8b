"""The registry of library kernels, and of the addresses of their machine code."""

from __future__ import annotations

import ctypes
import importlib
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from autotune import settings
from autotune.errors import BuildError, UsageError
from autotune.library import blas
from autotune.target import ITEM_BYTES

EXTERN = "extern"
"""The operation of functions that ``te.extern`` calls, of any arguments; they have no element type."""

OPERATIONS = ("matmul", EXTERN)
"""Operations that a library kernel may be registered for, beside operators of graphs by their names."""

_OPERATOR = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_-]*\.)*[A-Z][A-Za-z0-9_]*")
"""The name of an operator: that of ONNX, or one with a domain."""

Arguments = Callable[[Any, Any], Sequence[int | float] | None]
"""The numbers that a kernel of an operator takes, from types of operands and attributes; None where it cannot."""

Convention = Literal["layout", "fortran"]
_PREFIX = "autotune_library_"
_REGISTERED: dict[tuple[str, str], LibraryKernel] = {}
_BY_ADDRESS: dict[str, Any] = {}
"""Functions without a name that code calls, by symbol; they stay alive as long as the process."""


@dataclass(frozen=True)
class LibraryKernel:
    """A function of a library for one operation and element type.

    ``convention`` is how it takes its arguments: "layout" as ``docs/library-kernels.md`` says, "fortran" as the
    BLAS does. ``address`` finds the function, and raises BuildError where it is missing. One of an operator says by
    ``arguments`` which numbers follow the pointers, and declares its ``error``.
    """

    name: str
    operation: str
    dtype: str
    convention: Convention
    address: Callable[[], int]
    arguments: Arguments | None = None
    error: float = 0.0


def register(
    name: str,
    function: Any,
    *,
    operation: str = "matmul",
    dtype: str = "float32",
    arguments: Arguments | None = None,
    error: float = 1e-5,
) -> None:
    """Offer a function of one's own for an operation; registering a name again replaces it.

    ``function`` is what ``numba.cfunc`` makes, or anything with an integer ``address``. For "matmul", the product of
    A [m, k] and B [k, n], its signature is ``void(out*, a*, b*, int64* layout)``: pointers to the first elements of
    C, A and B, all of ``dtype``, and ``layout = (m, n, k, C's row step, 1, A's row step, 1, B's row step, 1)``, steps
    in elements. It stores all of C, calls from several threads at once, and must not raise. It must stay alive.
    For "extern" it takes what the program passes it (``te.call_extern``), and has no ``dtype``.

    For an operator, ``"Softmax"`` or ``"com.example.Snake"``, whose first operand has type ``dtype``, it takes pointers
    to the first elements of all results and of all operands, which are dense, and then by value the numbers that
    ``arguments(types, attrs)`` gives: ``int64_t`` for an int, ``double`` for a float. Where that gives None, or an
    operand is absent, it is not used. ``error`` is the declared bound, over the largest magnitude of the result.

    Raises UsageError for a name that is no lower-case identifier, an unknown operation, or no address.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name in ("tiles", blas.NAME):
        raise UsageError(
            f"library kernel {name!r}: a name is a lower-case identifier, and neither 'tiles' nor {blas.NAME!r}"
        )
    is_operator = _OPERATOR.fullmatch(operation) is not None
    if operation not in OPERATIONS and not is_operator:
        raise UsageError(
            f"library kernel {name}: no operation {operation!r}; allowed: {', '.join(OPERATIONS)}, and operators such "
            "as 'Softmax' or 'com.example.Snake'"
        )
    if is_operator != (arguments is not None):
        raise UsageError(
            f"library kernel {name}: a kernel of an operator, and no other, says by arguments= which numbers it takes"
        )
    allowed = ITEM_BYTES if is_operator else blas.FUNCTIONS
    if operation == EXTERN:
        dtype = EXTERN
    elif dtype not in allowed:
        raise UsageError(f"library kernel {name}: no dtype {dtype!r}; allowed: {', '.join(allowed)}")
    where = getattr(function, "address", None)
    if not isinstance(where, int) or not where:
        raise UsageError(f"library kernel {name}: {function!r} has no address; make it with numba.cfunc")
    _REGISTERED[name, dtype] = LibraryKernel(
        name, operation, dtype, "layout", lambda: function.address, arguments, error if is_operator else 0.0
    )


def unregister(name: str, dtype: str = "float32") -> None:
    """Take a kernel back; code that calls it is not affected while it is loaded, and can no longer be loaded."""
    _REGISTERED.pop((name, dtype), None)


def registered() -> tuple[tuple[str, str], ...]:
    """Return name and element type of every kernel that was registered in this process."""
    _import_modules()
    return tuple(sorted(_REGISTERED))


def kernels(operation: str, dtype: str) -> tuple[str, ...]:
    """Return names of the kernels for an operation and an element type, the shipped one first."""
    _import_modules()
    shipped = [blas.NAME] if operation == "matmul" and dtype in blas.FUNCTIONS else []
    own = sorted(n for (n, t), k in _REGISTERED.items() if t == dtype and k.operation == operation)
    return (*shipped, *own)


def operator_kernels() -> tuple[LibraryKernel, ...]:
    """Return the kernels of operators, by name and element type."""
    _import_modules()
    return tuple(
        kernel
        for _, kernel in sorted(_REGISTERED.items(), key=lambda item: item[0])
        if kernel.operation not in OPERATIONS
    )


def kernel(name: str, dtype: str) -> LibraryKernel:
    """Return a kernel; raises BuildError naming what is registered here."""
    _import_modules()
    if name == blas.NAME and dtype in blas.FUNCTIONS:
        return LibraryKernel(name, "matmul", dtype, "fortran", lambda: blas.address(dtype))
    found = _REGISTERED.get((name, dtype))
    if found is None:
        known = ", ".join(f"{n} ({t})" for n, t in sorted(_REGISTERED)) or "none"
        raise BuildError(
            f"library kernel {name} for {dtype} is not registered in this process (registered: {known}); name the "
            f"module that registers it in {settings.environment_name('kernels')}, or import it first"
        )
    return found


def symbol(name: str, dtype: str) -> str:
    """Return the symbol by which object code calls a kernel."""
    return f"{_PREFIX}{name}.{dtype}"


def extern_symbol(function: Any) -> str:
    """Return the symbol by which object code calls a function of ``te.extern``: registered, or of this process alone.

    Raises BuildError for a name that is not registered, UsageError for what has no address.
    """
    if isinstance(function, str):
        return symbol(kernel(function, EXTERN).name, EXTERN)
    where = _address_of(function)
    name = symbol(f"at_{where:x}", EXTERN)
    _BY_ADDRESS[name] = function
    return name


def _address_of(function: Any) -> int:
    where = function if isinstance(function, int) else getattr(function, "address", None)
    if where is None:
        with suppress(ctypes.ArgumentError):  # of what is no function of ctypes
            where = ctypes.cast(function, ctypes.c_void_p).value
    if not isinstance(where, int) or where <= 0:
        raise UsageError(
            f"{function!r} has no address; make it with numba.cfunc, or give a function of ctypes or an address"
        )
    return where


def library_symbols(names: Iterable[str]) -> tuple[str, ...]:
    """Return those symbols that are library kernels, in order."""
    return tuple(sorted(n for n in names if n.startswith(_PREFIX)))


def address(of: str) -> int:
    """Return the address of the kernel behind a symbol; raises BuildError where there is none in this process."""
    if of in _BY_ADDRESS:
        return _address_of(_BY_ADDRESS[of])
    name, _, dtype = of.removeprefix(_PREFIX).partition(".")
    return kernel(name, dtype).address()


def _import_modules() -> None:
    """Import what the settings name; their kernels are then known in every process of a job."""
    for module in settings.current().kernels.split(","):
        if module:
            try:
                importlib.import_module(module)
            except ImportError as error:
                raise UsageError(
                    f"{settings.environment_name('kernels')} names module {module!r}, which cannot be imported: {error}"
                ) from error


__all__ = [
    "EXTERN",
    "OPERATIONS",
    "LibraryKernel",
    "address",
    "extern_symbol",
    "kernel",
    "kernels",
    "library_symbols",
    "operator_kernels",
    "register",
    "registered",
    "symbol",
    "unregister",
]
