"""The subset of Python that the executor is written in: machine code computes what Python does."""

from __future__ import annotations

import ctypes
import textwrap
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.codegen.jit import LoadedCode
from autotune.codegen.llvm import compile_ir
from autotune.errors import BuildError, InternalError
from autotune.runtime.cpu import atomics
from autotune.runtime.cpu.translate.functions import Native, external, native
from autotune.runtime.cpu.translate.module import llvm_ir
from autotune.target import Target

pytestmark = pytest.mark.registers

LIMIT = 7
NAMES = {"not": "an integer"}


@native
def arithmetic(a: int, b: int) -> int:
    """All operators of integers, in several forms of assignment."""
    c: int = a * 3 - b
    d, c = c + 1, a
    d += b
    d -= LIMIT
    d *= 2
    d |= 5
    return (d & 0xFFFF) + (-c | b) + (c if True else d)


@native
def floors(a: int, b: int) -> int:
    """Both roundings, whatever the signs."""
    return 1000 * (a // b) + a % b


@native
def comparisons(a: int, b: int) -> int:
    """One bit each."""
    bits = 1 if a < b else 0
    bits += 2 if a <= b else 0
    bits += 4 if a > b else 0
    bits += 8 if a >= b else 0
    bits += 16 if a == b else 0
    return bits + (32 if a != b else 0)


@native
def connectives(a: int, b: int) -> int:
    """Truth values in variables, integers where a condition stands, and short cuts."""
    both = a > 0 and b > 0 and a != b
    either: bool = both or a == -b
    if not either and (a or b) and not (a and b):
        return 1
    # The division is only made where it is legal.
    return 2 if b and a // b > 1 else 3 + (4 if both or (b != 0 and a % b == 0) else 0)


@native
def branches(a: int, b: int) -> int:
    """Early returns, and a variable that every path gives a value."""
    if a > 2 * b:
        return min(a, LIMIT)
    elif a < b:
        c = max(a, b)
    else:
        c, flag = -1, True
        if flag:
            c = c - b
    return c


@native
def loops(a: int, b: int) -> int:
    """Ranges with one and two ends, a loop variable that is assigned to, break and continue."""
    total = 0
    for i in range(a):
        for j in range(b, i):
            if (i + j) % 3 == 0:
                continue
            total += i * j
            if total > 100:
                break
            j = -j
            total += j
        i = 0
        total += i
    count = a
    while count > -b:
        count -= 2
        if count == 4:
            break
    while True:
        total += 1
        if total % 5 == 0:
            return total + 100 * count


@native
def _square(a: int) -> int:
    return a * a


@native
def _is_even(a: int) -> bool:
    return a % 2 == 0


@native
def _nothing(a: int) -> None:
    if a:
        return
    _square(a)


@native
def _endless(a: int) -> int:
    while 1:
        a += 1
        if a > LIMIT:
            break
    return a


@native
def calls(a: int, b: int) -> int:
    """Functions of integers, of truth values and of nothing."""
    _nothing(b)
    even = _is_even(a)
    return _square(a) - _endless(b) if even and not _is_even(b + 1) else _square(_square(b))


@native
def fibonacci(a: int, b: int) -> int:
    """Nobody else calls this one, but itself."""
    return a if b < 2 or b > 15 else fibonacci(a, b - 1) + fibonacci(a, b - 2)


FUNCTIONS = (arithmetic, floors, comparisons, connectives, branches, loops, calls, fibonacci)
SMALL = st.integers(-40, 40)


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    """The functions as machine code, by symbol."""
    code = LoadedCode([compile_ir(llvm_ir(FUNCTIONS), Target.detect())])
    prototype = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    made: dict[str, Any] = {f.symbol: prototype(code.address(0, f.symbol)) for f in FUNCTIONS}
    return made | {"code": code}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.symbol.rsplit(".")[-1])
@given(a=SMALL, b=SMALL)
@settings(max_examples=200, deadline=None)
def test_machine_code_computes_what_python_does(
    function: Native[..., int], compiled: dict[str, Any], a: int, b: int
) -> None:
    if function is not floors or b:
        assert compiled[function.symbol](a, b) == function(a, b)


@given(a=st.integers(-(2**63), 2**63 - 1), b=st.integers(-(2**63), 2**63 - 1))
@settings(max_examples=200, deadline=None)
def test_integers_wrap_at_64_bits(compiled: dict[str, Any], a: int, b: int) -> None:
    wrapped = (arithmetic(a, b) + 2**63) % 2**64 - 2**63
    assert compiled[arithmetic.symbol](a, b) == wrapped


@native
def swap(address: int, value: int) -> int:
    """Every way to read and write a slot."""
    store(address, load(address) + 1)
    store_release(address, load_relaxed(address) + 10)
    if (
        exchange(address, 1) != 16
        or compare_exchange(address, 2, 3) != 1
        or compare_exchange(address, 1, 16) != 1
    ):
        return -2
    before = fetch_add(address, value)
    pause()
    yield_processor()
    unpark(address, 1)
    park(address, before)  # holds another value: returns at once
    begin = clock_ns()
    return before if load_acquire(address) == before + value and clock_ns() >= begin else -1


load, store, fetch_add = atomics.load, atomics.store, atomics.fetch_add
load_relaxed, load_acquire, store_release = atomics.load_relaxed, atomics.load_acquire, atomics.store_release
pause, yield_processor, clock_ns = atomics.pause, atomics.yield_processor, atomics.clock_ns
park, unpark = atomics.park, atomics.unpark
exchange, compare_exchange = atomics.exchange, atomics.compare_exchange


def test_operations_read_and_write_slots() -> None:
    code = LoadedCode([compile_ir(llvm_ir([swap]), Target.detect())])
    slot = np.array([5], np.int64)
    call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(code.address(0, swap.symbol))
    assert call(slot.ctypes.data, 100) == 16
    assert slot.tolist() == [116]


def test_only_machine_code_can_run_an_operation() -> None:
    with pytest.raises(InternalError, match="load can only be called by translated functions"):
        atomics.load(0)


@external("no_such_function")
def missing(a: int) -> int:  # type: ignore[empty-body]
    """A function that no process has."""


@native
def lost(a: int) -> int:
    """Calls it."""
    return missing(a)


def test_a_missing_external_is_one_error() -> None:
    with pytest.raises(BuildError, match="symbols that this process does not have: no_such_function"):
        LoadedCode([compile_ir(llvm_ir([lost]), Target.detect())])


RANGES = "only range(stop) and range(start, stop) can be looped over"
REFUSED = [
    ("return a + 0.5", "expected an integer of 64 bits or a truth value: 0.5"),
    ("return a + 9223372036854775808", "expected an integer of 64 bits or a truth value: 9223372036854775808"),
    ("return a + NAMES", "expected an integer of 64 bits or a truth value: NAMES"),
    ("return nowhere", "neither a variable nor a name of the module: nowhere"),
    ("return a ** 2", "Pow has no translation: a ** 2"),
    ("return a / 2", "Div has no translation: a / 2"),
    ("return ~a", "Invert has no translation: ~a"),
    ("return 0 < a < 2", "of comparisons only one of two integers has a translation: 0 < a < 2"),
    ("return a is 1", "of comparisons only one of two integers has a translation: a is 1"),
    ("return NAMES[a]", "Subscript has no translation: NAMES[a]"),
    ("return lambda: a", "Lambda has no translation: lambda: a"),
    ("b = [a]", "List has no translation: [a]"),
    ("return abs(a)", "only native functions, operations, and min and max of two can be called: abs(a)"),
    ("return min(a)", "only native functions, operations, and min and max of two can be called: min(a)"),
    ("return _square()", "test_translate._square takes 1 arguments by position: _square()"),
    ("return _square(a=a)", "test_translate._square takes 1 arguments by position: _square(a=a)"),
    ("return a + (a > 1)", "expected an integer, got a truth value: a > 1"),
    ("return -_is_even(a)", "expected an integer, got a truth value: _is_even(a)"),
    ("return a and 1", "expected a truth value, got an integer: a"),
    ("return 1 if a else a > 1", "expected an integer, got a truth value: a > 1"),
    ("return a > 1", "the function returns an integer, this is a truth value: return a > 1"),
    ("return", "the function returns an integer, this is nothing: return"),
    ("b = _nothing(a)", "a call that returns nothing has no value: b = _nothing(a)"),
    ("b = 1\nb = a > 1 # !", "'b' is an integer in one place and a truth value in another: b = a > 1"),
    ("if a:\n    b = 1\nreturn b # !", "a variable without a value on some path to here: b"),
    ("for i in range(a):\n    pass\nreturn i # !", "a variable without a value on some path to here: i"),
    ("while a:\n    b = 1\nreturn b # !", "a variable without a value on some path to here: b"),
    ("LIMIT += a", "a variable without a value on some path to here: LIMIT"),
    ("b = c = a", "only one assignment at a time has a translation: b = c = a"),
    ("b, c = a", "expected as many values as names: b, c = a"),
    ("b, c = a, a, a", "expected as many values as names: b, c = (a, a, a)"),
    ("b: int", "expected a value: b: int"),
    ("NAMES.x = a", "only names can be assigned to: NAMES.x"),
    ("for i in NAMES:\n    pass", f"{RANGES}: NAMES"),
    ("for i in range(0, a, 2):\n    pass", f"{RANGES}: range(0, a, 2)"),
    ("while a:\n    a -= 1\nelse:\n    pass", "else of a loop has no translation: while a:"),
    ("raise ValueError", "Raise has no translation: raise ValueError"),
    ("with a:\n    pass", "With has no translation: with a:"),
    ("if a:\n    return 1", "a path ends without a result: if a:"),
]  # fmt: skip


def _function(signature: str, body: str, path: Path) -> Native[..., Any]:
    """A native function of a file of its own, with the names of this module."""
    text = f"@native\ndef wrong{signature}:\n{textwrap.indent(body, '    ')}\n"
    path.write_text(text)
    names = dict(globals())
    exec(compile(text, path, "exec"), names)
    return cast("Native[..., Any]", names["wrong"])


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@pytest.mark.parametrize(("body", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_is_outside_the_subset_is_one_error_with_its_place(
    body: str, message: str, tmp_path: Path
) -> None:
    marked = [line.endswith("# !") for line in body.splitlines()]
    line = 3 + (marked.index(True) if any(marked) else 0)
    path = tmp_path / "wrong.py"
    with pytest.raises(BuildError) as caught:
        llvm_ir([_function("(a: int) -> int", body, path)])
    assert str(caught.value).replace(__name__, "test_translate") == f"{path}:{line}: {message}"


@pytest.mark.parametrize(
    ("signature", "name"),
    [("(a) -> int", "a"), ("(a: int) -> str", "return"), ("(a: None) -> int", "a"), ("(a: int)", "return")],
)
def test_signatures_are_annotated(signature: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=f":1: .*: {name} must be annotated int or bool, or return None"):
        llvm_ir([_function(signature, "return a", tmp_path / "wrong.py")])


def test_a_function_without_source_is_one_error(tmp_path: Path) -> None:
    function = _function("(a: int) -> int", "return a", tmp_path / "wrong.py")
    (tmp_path / "wrong.py").unlink()
    with pytest.raises(BuildError, match=r"wrong\.py:1: no source text to translate"):
        llvm_ir([function])
