"""A call of a module, from Python's objects to Python's objects, as machine code.

The usual call brings arrays that need no conversion: NumPy's own type, the element type and the shape
of the module, dense. That is seen from a few words of each array. Whatever is not the usual call
(another type, a stride, an array that overlaps) gives None and runs nothing: the checks written in
Python then convert it or say what is wrong.

Calls of one module take turns, because they share its memory. The mutex is taken and given back here, so that
no signal can leave a module locked.
"""

from __future__ import annotations

from typing import Final

from autotune.runtime.addresses import at
from autotune.runtime.atomics import load, store
from autotune.runtime.device import ALIGNMENT
from autotune.runtime.executor import execute
from autotune.runtime.indices import take_wrong
from autotune.runtime.layout import (
    ADDRESSES,
    ARRAY,
    BYTE,
    BYTES,
    CALLED,
    CHECKED,
    CHECKS,
    DTYPE,
    INPUTS,
    LIST,
    MUTEX,
    NEW_ARRAY,
    NONE,
    OUTPUTS,
    PADDED,
    RANK,
    SET_BASE,
    SHAPE,
    TENSOR_SLOTS,
    TENSORS,
)
from autotune.runtime.mutex import lock, try_lock, unlock
from autotune.runtime.objects import (
    ARRAY_DATA,
    ARRAY_DTYPE,
    ARRAY_FLAGS,
    ARRAY_RANK,
    ARRAY_SHAPE,
    DENSE,
    LOW_HALF,
    OBJECT_SLOTS,
    OBJECT_TYPE,
    TUPLE_ITEMS,
    WRITABLE,
    drop,
    get_item,
    length,
    new_array,
    new_list,
    release_gil,
    retain,
    set_base,
    set_item,
    take_gil,
)
from autotune.runtime.translate.functions import native

RAN: Final = 0
CLOSED: Final = 1
UNATTENDED: Final = 2
WRONG: Final = 3
"""What :func:`run` returns."""

_UNALIGNED = 4096
"""Bytes. Below, aligning an output to a cache line costs more than it saves."""


@native
def _same(a: int, b: int, slots: int) -> bool:
    """Whether two pieces of memory hold the same."""
    equal: bool = True
    for slot in range(slots):
        equal = equal and load(at(a, slot)) == load(at(b, slot))
    return equal


@native
def _plain(record: int, tensor: int, array: int, flags: int) -> bool:
    """Whether an object is an array of a tensor's type and shape with these flags."""
    if load(at(array, OBJECT_TYPE)) != load(at(record, ARRAY)):
        return False
    if load(at(array, ARRAY_DTYPE)) != load(at(tensor, DTYPE)):
        return False
    if load(at(array, ARRAY_FLAGS)) & flags != flags:
        return False
    rank = load(at(tensor, RANK))
    if load(at(array, ARRAY_RANK)) & LOW_HALF != rank:
        return False
    same: bool = _same(load(at(tensor, SHAPE)), load(at(array, ARRAY_SHAPE)), rank)
    return same


@native
def _plain_inputs(record: int, arrays: int) -> bool:
    """Whether a tuple's items are as the inputs must be."""
    count = load(at(record, INPUTS))
    if load(at(arrays, OBJECT_SLOTS)) != count:
        return False
    tensor = load(at(record, TENSORS))
    for index in range(count):
        if not _plain(record, tensor, load(at(arrays, TUPLE_ITEMS + index)), DENSE):
            return False
        tensor = at(tensor, TENSOR_SLOTS)
    return True


@native
def _fresh_array(record: int, tensor: int) -> int:
    """A new array; 0 and an exception without memory."""
    function, kind = load(at(record, NEW_ARRAY)), load(at(record, ARRAY))
    dtype, rank, shape = load(at(tensor, DTYPE)), load(at(tensor, RANK)), load(at(tensor, SHAPE))
    memory, data = 0, 0
    if load(at(tensor, BYTES)) >= _UNALIGNED:
        byte = load(at(record, BYTE))
        retain(byte)
        memory = new_array(function, kind, byte, 1, at(tensor, PADDED), 0, 0)
        if memory == 0:
            return 0
        data = (load(at(memory, ARRAY_DATA)) + ALIGNMENT - 1) & -ALIGNMENT
    retain(dtype)
    array: int = new_array(function, kind, dtype, rank, shape, data, DENSE | WRITABLE if data else 0)
    if memory:
        if array:
            set_base(load(at(record, SET_BASE)), array, memory)
        else:
            drop(memory)
    return array


@native
def _fresh_outputs(record: int) -> int:
    """A list of new arrays; 0 and an exception without memory."""
    count = load(at(record, OUTPUTS))
    tensor = at(load(at(record, TENSORS)), load(at(record, INPUTS)) * TENSOR_SLOTS)
    outputs: int = new_list(count)
    if outputs == 0:
        return 0
    for index in range(count):
        array = _fresh_array(record, tensor)
        if array == 0:
            drop(outputs)
            return 0
        set_item(outputs, index, array)
        tensor = at(tensor, TENSOR_SLOTS)
    return outputs


@native
def _data(record: int, arrays: int, outputs: int, index: int) -> int:
    """Address of the first element of an argument: of an item of the tuple of inputs, then of the list."""
    inputs = load(at(record, INPUTS))
    if index < inputs:
        return load(at(load(at(arrays, TUPLE_ITEMS + index)), ARRAY_DATA))
    return load(at(get_item(outputs, index - inputs), ARRAY_DATA))


@native
def _overlaps(record: int, arrays: int, given: int, index: int) -> bool:
    """Whether the argument ``index`` may share memory with one before it."""
    tensors = load(at(record, TENSORS))
    begin = _data(record, arrays, given, index)
    end = begin + load(at(tensors, index * TENSOR_SLOTS + BYTES))
    for other in range(index):
        first = _data(record, arrays, given, other)
        if begin < first + load(at(tensors, other * TENSOR_SLOTS + BYTES)) and first < end:
            return True
    return False


@native
def _plain_outputs(record: int, arrays: int, given: int) -> bool:
    """Whether a list's items may be written to as the outputs."""
    count, inputs = load(at(record, OUTPUTS)), load(at(record, INPUTS))
    if load(at(given, OBJECT_TYPE)) != load(at(record, LIST)) or length(given) != count:
        return False
    tensor = at(load(at(record, TENSORS)), inputs * TENSOR_SLOTS)
    for index in range(count):
        if not _plain(record, tensor, get_item(given, index), DENSE | WRITABLE):
            return False
        if _overlaps(record, arrays, given, inputs + index):
            return False
        tensor = at(tensor, TENSOR_SLOTS)
    return True


@native
def _run_once(record: int, arrays: int, outputs: int) -> bool:
    """Bind the arguments of a call and run, after the calls before; False when nothing ran, or on a wrong index.

    The GIL is held at the beginning and at the end, but not while it waits or runs.
    """
    mutex = at(record, MUTEX)
    if not try_lock(mutex):
        waiting = release_gil()
        lock(mutex)
        take_gil(waiting)
    program = load(at(record, CALLED))
    if program == 0:
        unlock(mutex)
        return False
    addresses = load(at(program, ADDRESSES))
    for index in range(load(at(record, INPUTS)) + load(at(record, OUTPUTS))):
        store(at(addresses, index), _data(record, arrays, outputs, index))
    running = release_gil()
    ran = execute(program, 1, 0, 0)
    wrong = take_wrong(load(at(program, CHECKS)), load(at(program, CHECKED)), 0)
    unlock(mutex)
    take_gil(running)
    return ran and wrong < 0


@native
def call(owner: int, arguments: int, number: int) -> int:
    """Run a module: ``call(arrays, out)`` as CPython's METH_FASTCALL calls it, with the GIL.

    ``owner`` is the array that holds the call record, ``arrays`` a tuple and ``out`` a list of the
    caller's own, or None. Returns the list of outputs; None when nothing ran because the arguments
    need the checks written in Python, workers are to be started, or the module is closed; and when an
    index was out of range: the call in Python runs again, and says which.
    """
    record = load(at(owner, ARRAY_DATA))
    none = load(at(record, NONE))
    arrays, outputs = load(arguments), load(at(arguments, 1))
    ran = False
    if _plain_inputs(record, arrays):
        if outputs == none:
            outputs = _fresh_outputs(record)
            if outputs == 0:
                return 0
            ran = _run_once(record, arrays, outputs)
            if not ran:
                drop(outputs)
        elif _plain_outputs(record, arrays, outputs):
            ran = _run_once(record, arrays, outputs)
            if ran:
                retain(outputs)
    if not ran:
        outputs = none
        retain(none)
    return outputs


@native
def run(record: int, addresses: int, repeats: int, times: int, events: int) -> int:
    """Run a module's program on arrays at these addresses, after the calls before; without the GIL.

    See :func:`autotune.runtime.executor.execute`. Returns RAN, CLOSED, UNATTENDED where workers are to be
    started, or WRONG plus the number of a check that found an index out of range; that stands in place of the
    first address then.
    """
    mutex = at(record, MUTEX)
    lock(mutex)
    program = load(at(record, CALLED))
    outcome = CLOSED
    if program:
        bound = load(at(program, ADDRESSES))
        for index in range(load(at(record, INPUTS)) + load(at(record, OUTPUTS))):
            store(at(bound, index), load(at(addresses, index)))
        outcome = UNATTENDED
        if execute(program, repeats, times, events):
            wrong = take_wrong(load(at(program, CHECKS)), load(at(program, CHECKED)), addresses)
            outcome = RAN if wrong < 0 else WRONG + wrong
    unlock(mutex)
    return outcome


@native
def close(record: int) -> None:
    """Run nothing any more, after the calls before; without the GIL."""
    lock(at(record, MUTEX))
    store(at(record, CALLED), 0)
    unlock(at(record, MUTEX))


__all__ = ["CLOSED", "RAN", "UNATTENDED", "WRONG", "call", "close", "run"]
