"""A call of a module, from Python's objects to Python's objects, as machine code.

The usual call brings arrays that need no conversion: NumPy's own type, the element type and the shape
of the module, dense. That is seen from a few words of each array. Whatever is not the usual call
(another type, a stride, an array that overlaps) gives None and runs nothing: the checks written in
Python then convert it or say what is wrong.
"""

from __future__ import annotations

from autotune.runtime.atomics import load, store
from autotune.runtime.device import ALIGNMENT
from autotune.runtime.executor import execute
from autotune.runtime.layout import (
    ADDRESSES,
    ARRAY,
    BYTE,
    BYTES,
    CALLED,
    DTYPE,
    INPUTS,
    LIST,
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

_UNALIGNED = 4096
"""Bytes. Below, aligning an output to a cache line costs more than it saves."""


@native
def _at(base: int, slot: int) -> int:
    """Address of a slot."""
    return base + 8 * slot


@native
def _same(a: int, b: int, slots: int) -> bool:
    """Whether two pieces of memory hold the same."""
    equal: bool = True
    for slot in range(slots):
        equal = equal and load(_at(a, slot)) == load(_at(b, slot))
    return equal


@native
def _plain(record: int, tensor: int, array: int, flags: int) -> bool:
    """Whether an object is an array of a tensor's type and shape with these flags."""
    if load(_at(array, OBJECT_TYPE)) != load(_at(record, ARRAY)):
        return False
    if load(_at(array, ARRAY_DTYPE)) != load(_at(tensor, DTYPE)):
        return False
    if load(_at(array, ARRAY_FLAGS)) & flags != flags:
        return False
    rank = load(_at(tensor, RANK))
    if load(_at(array, ARRAY_RANK)) & LOW_HALF != rank:
        return False
    same: bool = _same(load(_at(tensor, SHAPE)), load(_at(array, ARRAY_SHAPE)), rank)
    return same


@native
def _bind_inputs(record: int, arrays: int, addresses: int) -> bool:
    """Whether a tuple's items are as the inputs must be; their addresses go to the program."""
    count = load(_at(record, INPUTS))
    if load(_at(arrays, OBJECT_SLOTS)) != count:
        return False
    tensor = load(_at(record, TENSORS))
    for index in range(count):
        array = load(_at(arrays, TUPLE_ITEMS + index))
        if not _plain(record, tensor, array, DENSE):
            return False
        store(_at(addresses, index), load(_at(array, ARRAY_DATA)))
        tensor = _at(tensor, TENSOR_SLOTS)
    return True


@native
def _fresh_array(record: int, tensor: int) -> int:
    """A new array; 0 and an exception without memory."""
    function, kind = load(_at(record, NEW_ARRAY)), load(_at(record, ARRAY))
    dtype, rank, shape = load(_at(tensor, DTYPE)), load(_at(tensor, RANK)), load(_at(tensor, SHAPE))
    memory, data = 0, 0
    if load(_at(tensor, BYTES)) >= _UNALIGNED:
        byte = load(_at(record, BYTE))
        retain(byte)
        memory = new_array(function, kind, byte, 1, _at(tensor, PADDED), 0, 0)
        if memory == 0:
            return 0
        data = (load(_at(memory, ARRAY_DATA)) + ALIGNMENT - 1) & -ALIGNMENT
    retain(dtype)
    array: int = new_array(function, kind, dtype, rank, shape, data, DENSE | WRITABLE if data else 0)
    if memory:
        if array:
            set_base(load(_at(record, SET_BASE)), array, memory)
        else:
            drop(memory)
    return array


@native
def _fresh_outputs(record: int, addresses: int) -> int:
    """A list of new arrays; 0 and an exception without memory."""
    count = load(_at(record, OUTPUTS))
    tensor = _at(load(_at(record, TENSORS)), load(_at(record, INPUTS)) * TENSOR_SLOTS)
    outputs: int = new_list(count)
    if outputs == 0:
        return 0
    for index in range(count):
        array = _fresh_array(record, tensor)
        if array == 0:
            drop(outputs)
            return 0
        store(_at(addresses, load(_at(record, INPUTS)) + index), load(_at(array, ARRAY_DATA)))
        set_item(outputs, index, array)
        tensor = _at(tensor, TENSOR_SLOTS)
    return outputs


@native
def _overlaps(record: int, addresses: int, index: int) -> bool:
    """Whether the argument ``index`` may share memory with one before it."""
    tensors = load(_at(record, TENSORS))
    begin = load(_at(addresses, index))
    end = begin + load(_at(tensors, index * TENSOR_SLOTS + BYTES))
    for other in range(index):
        first = load(_at(addresses, other))
        if begin < first + load(_at(tensors, other * TENSOR_SLOTS + BYTES)) and first < end:
            return True
    return False


@native
def _given_outputs(record: int, given: int, addresses: int) -> bool:
    """Whether a list's items may be written to as the outputs; their addresses go to the program."""
    count, inputs = load(_at(record, OUTPUTS)), load(_at(record, INPUTS))
    if load(_at(given, OBJECT_TYPE)) != load(_at(record, LIST)) or length(given) != count:
        return False
    tensor = _at(load(_at(record, TENSORS)), inputs * TENSOR_SLOTS)
    for index in range(count):
        array = get_item(given, index)
        if not _plain(record, tensor, array, DENSE | WRITABLE):
            return False
        store(_at(addresses, inputs + index), load(_at(array, ARRAY_DATA)))
        if _overlaps(record, addresses, inputs + index):
            return False
        tensor = _at(tensor, TENSOR_SLOTS)
    return True


@native
def call(owner: int, arguments: int, number: int) -> int:
    """Run a module: ``call(arrays, out)`` as CPython's METH_FASTCALL calls it, with the GIL.

    ``owner`` is the array that holds the call record, ``arrays`` a tuple and ``out`` a list of the
    caller's own, or None. Returns the list of outputs; None when nothing ran because the arguments
    need the checks written in Python. The caller has the module and, for more than one worker, the
    pool for itself.
    """
    record = load(_at(owner, ARRAY_DATA))
    none: int = load(_at(record, NONE))
    program = load(_at(record, CALLED))
    outputs: int = none
    if program:
        addresses = load(_at(program, ADDRESSES))
        given = load(_at(arguments, 1))
        if _bind_inputs(record, load(arguments), addresses):
            if given == none:
                outputs = _fresh_outputs(record, addresses)
                if outputs == 0:
                    return 0
            elif _given_outputs(record, given, addresses):
                outputs = given
                retain(given)
    if outputs == none:
        retain(none)
        return none
    thread = release_gil()
    execute(program)
    take_gil(thread)
    return outputs


__all__ = ["call"]
