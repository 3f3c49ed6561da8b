"""A call of a module, from Python's objects to Python's objects, as machine code.

The usual call brings arrays that need no conversion: NumPy's own type, the element type and the shape
of the module, dense. That is seen from a few words of each array. Whatever is not the usual call
(another type, a stride, an array that overlaps) gives None and runs nothing: the checks written in
Python then convert it or say what is wrong.

Each instance of a module has memory for one run. A call that is alone takes the first, which has all workers; others
take one of the rest, and where none is free wait one after another. The mutex of an instance is taken and given back
here, so that no signal can leave it locked.
"""

from __future__ import annotations

from typing import Final

from autotune.runtime.cpu.addresses import at
from autotune.runtime.cpu.atomics import (
    clock_ns,
    exchange,
    fetch_add,
    load,
    load_acquire,
    load_ordered,
    load_relaxed,
    park,
    store,
    store_release,
    unpark,
)
from autotune.runtime.cpu.device import ALIGNMENT
from autotune.runtime.cpu.executor import execute
from autotune.runtime.cpu.indices import take_wrong
from autotune.runtime.cpu.layout import (
    ADDRESSES,
    ARRAY,
    BESIDE,
    BYTE,
    BYTES,
    CALLED,
    CANCELLED,
    CHECKED,
    CHECKS,
    DTYPE,
    FIRST,
    FREED,
    GATE_COUNT,
    GATES,
    HEAD,
    HEAD_NS,
    INPUTS,
    JOINING,
    LIST,
    MUTEX,
    NARROW,
    NEW_ARRAY,
    NEXT,
    NO_REQUEST,
    NONE,
    OTHERS,
    OUTPUTS,
    PADDED,
    PARALLEL,
    PLACE,
    RANK,
    REQUEST,
    RUN_NS,
    SET_BASE,
    SHAPE,
    SHORT,
    TEAM,
    TENSOR_SLOTS,
    TENSORS,
    TICKETS,
    WANTED,
)
from autotune.runtime.cpu.mutex import lock, try_lock, unlock
from autotune.runtime.cpu.objects import (
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
from autotune.runtime.cpu.translate.functions import native
from autotune.runtime.cpu.waiting import EVERYBODY

RAN: Final = 0
CLOSED: Final = 1
UNATTENDED: Final = 2
STOPPED: Final = 3
WRONG: Final = 4
"""The results of :func:`run`."""

_PATIENCE_NS = 1_000_000
"""So long may calls take an instance before one that waits and is the next: waking it takes time, in which short ones
are done. Then it comes first: nobody waits for long."""

_BRIEF_NS = 10_000
"""Handing the GIL to another thread and back takes about as long."""

_UNALIGNED = 4096
"""Bytes. Below, aligning an output to a cache line costs more than it saves."""


@native
def _same(a: int, b: int, slots: int) -> bool:
    """Return whether two pieces of memory hold the same."""
    equal: bool = True
    for slot in range(slots):
        equal = equal and load(at(a, slot)) == load(at(b, slot))
    return equal


@native
def _plain(record: int, tensor: int, array: int, flags: int) -> bool:
    """Return whether an object is an array of a tensor's type and shape with these flags."""
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
    """Return whether a tuple's items are as the inputs must be."""
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
    """Return a new array; 0 and an exception without memory."""
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
    """Return a list of new arrays; 0 and an exception without memory."""
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
    """Return the address of the first element of an argument: of an item of the tuple of inputs, then of the list."""
    inputs = load(at(record, INPUTS))
    if index < inputs:
        return load(at(load(at(arrays, TUPLE_ITEMS + index)), ARRAY_DATA))
    return load(at(get_item(outputs, index - inputs), ARRAY_DATA))


@native
def _overlaps(record: int, arrays: int, given: int, index: int) -> bool:
    """Return whether the argument ``index`` may share memory with one before it, but for the place of an input that it
    may take."""
    tensors = load(at(record, TENSORS))
    begin = _data(record, arrays, given, index)
    place = load(at(tensors, index * TENSOR_SLOTS + PLACE))
    end = begin + load(at(tensors, index * TENSOR_SLOTS + BYTES))
    for other in range(index):
        first = _data(record, arrays, given, other)
        in_place: bool = other == place and begin == first
        if not in_place and begin < first + load(at(tensors, other * TENSOR_SLOTS + BYTES)) and first < end:
            return True
    return False


@native
def _plain_outputs(record: int, arrays: int, given: int) -> bool:
    """Return whether a list's items may be written to as the outputs."""
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
def _free_instance(record: int, narrow: int) -> int:
    """Return the call record of an instance that nobody uses, locked; 0 where there is none.

    The first, unless ``narrow``, and unless others are in use: its workers would share cores with theirs.
    """
    if narrow == 0 and load_relaxed(at(record, BESIDE)) == 0 and try_lock(at(record, MUTEX)):
        return record
    other = load_acquire(at(record, NEXT))
    while other:
        if try_lock(at(other, MUTEX)):
            fetch_add(at(record, BESIDE), 1)
            return other
        other = load(at(other, NEXT))
    return 0


@native
def _others_first(record: int) -> bool:
    """Return whether a call is to wait behind others though an instance may be free: the next of them
    waited for long."""
    awaited: bool = load_relaxed(at(record, TICKETS)) != load_relaxed(at(record, HEAD))
    return awaited and clock_ns() - load_relaxed(at(record, HEAD_NS)) > _PATIENCE_NS


@native
def _await_turn(record: int) -> int:
    """Wait behind those who wait for an instance already; the ticket."""
    ticket = fetch_add(at(record, TICKETS), 1)
    gate = at(record, GATES + ticket % GATE_COUNT)
    if load_ordered(at(record, HEAD)) == ticket:
        store_release(at(record, HEAD_NS), clock_ns())
    seen = load_ordered(gate)
    while load_ordered(at(record, HEAD)) != ticket:
        park(gate, seen)
        seen = load_ordered(gate)
    return ticket


@native
def _await_instance(record: int) -> int:
    """Return the call record of an instance, locked, after those who have it and those who wait for it;
    without the GIL."""
    ticket = _await_turn(record)
    seen = load_ordered(at(record, FREED))
    narrow = load_acquire(at(record, OTHERS))  # not the first where there are others: it is for who is alone
    taken: int = _free_instance(record, narrow)
    while taken == 0:
        park(at(record, FREED), seen)
        seen = load_ordered(at(record, FREED))
        taken = _free_instance(record, narrow)
    store_release(at(record, HEAD_NS), clock_ns())
    exchange(at(record, HEAD), ticket + 1)
    if load_ordered(at(record, TICKETS)) != ticket + 1:
        gate = at(record, GATES + (ticket + 1) % GATE_COUNT)
        fetch_add(gate, 1)
        unpark(gate, EVERYBODY)
    return taken


@native
def _give_back(record: int, taken: int) -> None:
    """Let others have an instance that was taken for a call."""
    if taken != record:
        fetch_add(at(record, BESIDE), -1)
    _let_go(taken)


@native
def _let_go(record: int) -> None:
    """Let others have an instance.

    Either whoever waits is seen here, or it sees the instance free: taking a ticket, trying a mutex and giving it
    back are sequentially consistent.
    """
    first = load(at(record, FIRST))  # before others may have it
    unlock(at(record, MUTEX))
    if load_ordered(at(first, TICKETS)) != load_ordered(at(first, HEAD)):
        fetch_add(at(first, FREED), 1)
        unpark(at(first, FREED), EVERYBODY)


@native
def _bind(record: int, program: int, arrays: int, outputs: int, request: int) -> int:
    """Let the next run of a program be of these arguments; the request row that it looks at."""
    addresses = load(at(program, ADDRESSES))
    for index in range(load(at(record, INPUTS)) + load(at(record, OUTPUTS))):
        store(at(addresses, index), _data(record, arrays, outputs, index))
    watched = request if request else at(program, NO_REQUEST)
    store(at(program, REQUEST), watched)
    return watched


@native
def _is_brief(taken: int, program: int) -> bool:
    """Return whether a run may keep the GIL: by its last one it is done sooner than another thread has it, and it
    waits for nobody."""
    alone: bool = load(at(program, TEAM)) == 1 or load(at(program, PARALLEL)) == 0
    last = load(at(taken, RUN_NS))
    return alone and last != 0 and last < _BRIEF_NS


@native
def _run_once(record: int, arrays: int, outputs: int, request: int) -> bool:
    """Run on a free instance; False when nothing ran, or on a wrong index, or when the request was cancelled meanwhile.

    The GIL is held at the beginning and at the end, but not while it waits or runs for more than a moment: nobody else
    changes the tuple and the list. Nothing ran where Python is to make an instance first.
    """
    taken, running = 0, 0
    if not _others_first(record):
        taken = _free_instance(record, load(at(request, NARROW)) if request else 0)
    if taken == 0:
        if load_acquire(at(record, OTHERS)) < load(at(record, WANTED)):
            store(at(record, SHORT), 1)
            return False
        running = release_gil()
        taken = _await_instance(record)
    ran, wrong, stopped = False, -1, 0
    program = load(at(taken, CALLED))
    if program:
        watched: int = _bind(record, program, arrays, outputs, request)
        brief: bool = _is_brief(taken, program)
        if running == 0 and not brief:
            running = release_gil()
        begin = clock_ns()
        ran = execute(program, 1, 0, 0)
        end = clock_ns()
        wrong = take_wrong(load(at(program, CHECKS)), load(at(program, CHECKED)), 0)
        stopped = load_relaxed(at(watched, CANCELLED))
        if ran and stopped == 0:
            store(at(taken, RUN_NS), end - begin)
    _give_back(record, taken)
    if running:
        take_gil(running)
    return ran and wrong < 0 and stopped == 0


@native
def call(owner: int, arguments: int, number: int) -> int:
    """Run a module: ``call(arrays, out)`` as CPython's METH_FASTCALL calls it, with the GIL.

    ``owner`` is the array that holds the call record, ``arrays`` a tuple and ``out`` a list of the
    caller's own, or None; an array that is a request row may follow. Returns the list of outputs; None when nothing
    ran because the arguments need the checks written in Python, workers are to be started, an instance is to be
    made, or the module is closed; when the request was cancelled; and when an index was out of range: the call in
    Python runs again, and says which.
    """
    record = load(at(owner, ARRAY_DATA))
    none = load(at(record, NONE))
    arrays, outputs = load(arguments), load(at(arguments, 1))
    request = load(at(load(at(arguments, 2)), ARRAY_DATA)) if number > 2 else 0
    ran = False
    if _plain_inputs(record, arrays):
        if outputs == none:
            outputs = _fresh_outputs(record)
            if outputs == 0:
                return 0
            ran = _run_once(record, arrays, outputs, request)
            if not ran:
                drop(outputs)
        elif _plain_outputs(record, arrays, outputs):
            ran = _run_once(record, arrays, outputs, request)
            if ran:
                retain(outputs)
    if not ran:
        outputs = none
        retain(none)
    return outputs


@native
def run(record: int, addresses: int, repeats: int, times: int, events: int, request: int) -> int:
    """Run an instance's program on arrays at these addresses, after the calls before; without the GIL.

    See :func:`autotune.runtime.cpu.executor.execute`; ``request`` is the address of a request row, or 0. Returns RAN,
    CLOSED, UNATTENDED where workers are to be started, STOPPED where the request was cancelled, or WRONG plus the
    number of a check that found an index out of range; that stands in place of the first address then.
    """
    lock(at(record, MUTEX))
    program = load(at(record, CALLED))
    outcome = CLOSED
    if program:
        bound = load(at(program, ADDRESSES))
        for index in range(load(at(record, INPUTS)) + load(at(record, OUTPUTS))):
            store(at(bound, index), load(at(addresses, index)))
        watched = request if request else at(program, NO_REQUEST)
        store(at(program, REQUEST), watched)
        outcome = UNATTENDED
        if execute(program, repeats, times, events):
            wrong = take_wrong(load(at(program, CHECKS)), load(at(program, CHECKED)), addresses)
            outcome = RAN if wrong < 0 else WRONG + wrong
            if load_relaxed(at(watched, CANCELLED)):
                outcome = STOPPED
    _let_go(record)
    return outcome


@native
def join(record: int, other: int) -> int:
    """Let calls use one more instance, unless there are enough; 1 if they do. Without the GIL."""
    lock(at(record, JOINING))
    joined = 0
    if load(at(record, OTHERS)) < load(at(record, WANTED)):
        store(at(other, FIRST), record)
        store(at(other, NEXT), load(at(record, NEXT)))
        store_release(at(record, NEXT), other)
        store_release(at(record, OTHERS), load(at(record, OTHERS)) + 1)
        joined = 1
    unlock(at(record, JOINING))
    return joined


@native
def close(record: int) -> None:
    """Run nothing any more, after the calls before; without the GIL."""
    lock(at(record, MUTEX))
    store(at(record, CALLED), 0)
    _let_go(record)


__all__ = ["CLOSED", "RAN", "STOPPED", "UNATTENDED", "WRONG", "call", "close", "join", "run"]
