"""Offsets in the memory that Python writes and the native executor reads.

All of it is int64 slots; offsets here count slots of 8 bytes. Four structures:

* a **program**, one an instance of a module: a header, the command rows, the pointer tables of the kernels, and the
  patches that put the addresses of a call's inputs and outputs into those tables;
* a **call record**, one an instance of a module: what a call from Python must bring, and which program it runs, one
  call at a time. The first of a module knows the others;
* a **request row**, one a run that may be cancelled;
* the **pool state**, one a worker pool: what the workers of the pool share. Slots written by different
  workers are 128 bytes apart, because cores fetch lines of 64 bytes in pairs.
"""

from __future__ import annotations

from typing import Final

# Program header.
COMMANDS: Final = 0  # address of the command rows
COUNT: Final = 1  # how many
SCRATCH: Final = 2  # address of worker 0's scratch memory
SCRATCH_STRIDE: Final = 3  # bytes from one worker's scratch memory to the next
PATCHES: Final = 4  # address of the patch rows
PATCH_COUNT: Final = 5
ADDRESSES: Final = 6  # address of this call's input addresses, then output addresses
PARALLEL: Final = 7  # 1 when some command has more than one tile
TEAM: Final = 8  # workers
STATE: Final = 9  # address of the pool's state, 0 for one worker
SHARED: Final = 10  # commands up to the last that several workers run: what workers other than 0 may read
CHECKS: Final = 11  # address of the check rows
CHECKED: Final = 12  # how many
REQUEST: Final = 13  # address of the request row of this run
NO_REQUEST: Final = 14  # a request row of zeros, of runs that nobody cancels: two slots
SHARED_TILES: Final = 16  # tiles of a run that workers share out among themselves
SAMPLE: Final = 17  # address of event rows of one run, for the executor's own use
ROWS_STRIDE: Final = 18  # bytes from one worker's command rows to the next's, 0 where all have the same
HEADER_SLOTS: Final = 19

# Request row.
CANCELLED: Final = 0  # not 0: commands that have not begun do nothing
DEADLINE_NS: Final = 1  # of the monotonic clock, 0 for none: what has not begun by then is cancelled as LATE
NARROW: Final = 2  # 1: there are more requests, so this one leaves workers for others
REQUEST_SLOTS: Final = 3
LATE: Final = 2

# Command row.
KERNEL: Final = 0  # address of the machine code
TABLE: Final = 1  # address of its pointer table
TILES: Final = 2
UNIT: Final = 3  # tiles are claimed by so many
AWAIT: Final = 4  # how many commands of the program must be done before this one starts
ALONE: Final = 5  # 1: worker 0 runs all of it
ARRIVE: Final = (
    6  # of one that it runs alone, 1: it says when it is done with this command and those before it
)
LEAVE: Final = (
    6  # of others, 1: all wait before it and behind it, so that a worker may leave tiles to their owner
)
GUARD: Final = 7  # address of its first guard row, 0 for none: it runs only if all its guards say so
REPEAT: Final = 8  # address of a repeat row, where it is no kernel that is called
BEHIND: Final = (
    9  # of these, 1: it is the row behind the commands that are repeated, and not the one before them
)
COMMAND_SLOTS: Final = 10

# Repeat row, one of each worker.
TIMES: Final = 0  # how often its commands run, at most
GONE: Final = 1  # how often it has gone on
LENGTH: Final = 2  # command rows from the one before its commands to the one behind
MOTIONS: Final = 3  # address of the motion rows
MOTION_COUNT: Final = 4
DECIDED: Final = 5  # 1: it goes on only if all guards of the row behind say so, of which worker 0 decides
ENDED: Final = 6  # address of the number of the row behind at which it ended last, the same for all workers
INSIDE_ANOTHER: Final = 7
REPEAT_SLOTS: Final = 8

# Motion row.
MOTION_SLOT: Final = (
    0  # address of what changes: an entry of a pointer table, or MOTION_FIRST of a repeat inside
)
MOTION_STEP: Final = 1  # bytes to add each time
MOTION_FIRST: Final = 2  # what it is the first time
MOTION_SLOTS: Final = 3

# Guard row.
GUARD_PLACE: Final = 0  # address of a boolean of one byte
GUARD_WANTED: Final = 1  # the command runs if it is this, 0 or 1
GUARD_NEXT: Final = 2  # address of the command's next guard row, 0 behind the last
GUARD_SLOTS: Final = 3

# Patch row.
PATCH_SLOT: Final = 0  # address of the pointer-table entry
PATCH_SOURCE: Final = 1  # index into the call's addresses
PATCH_OFFSET: Final = 2  # bytes to add
PATCH_SLOTS: Final = 3

# Check row: indices that a dispatch reads.
CHECK_COUNT: Final = 0  # indices of a run, which follow each other
CHECK_CHUNKS: Final = 1  # tiles of a run
CHECK_STRIDE: Final = 2  # bytes from one run to the next
CHECK_WIDTH: Final = 3  # bytes of an index
CHECK_EXTENT: Final = 4  # indices lie from -extent to extent - 1
CHECK_INDEX: Final = 5  # a wrong one
CHECK_WRONG: Final = 6  # 1 when there is one
CHECK_SLOTS: Final = 8
CHECK_TILE: Final = 4096  # indices of a tile

# Call record.
CALLED: Final = 0  # address of the program, 0 for a closed module
INPUTS: Final = 1  # how many
OUTPUTS: Final = 2
TENSORS: Final = 3  # address of the tensor rows: inputs, then outputs
NONE: Final = 4  # addresses of Python's objects
LIST: Final = 5
ARRAY: Final = 6  # NumPy's array type
BYTE: Final = 7  # NumPy's type of bytes
NEW_ARRAY: Final = 8  # addresses of two functions of NumPy
SET_BASE: Final = 9
MUTEX: Final = 10  # whoever has it binds addresses to the program and runs it
NEXT: Final = 11  # address of the call record of another instance of this module, 0 behind the last
BESIDE: Final = 12  # how many runs there are on other instances than this one
OTHERS: Final = 13  # how many other instances there are
WANTED: Final = 14  # and how many there may be
SHORT: Final = 15  # 1 when a call ended because all instances were in use and there may be more
JOINING: Final = 16  # mutex: whoever has it adds an instance
TICKETS: Final = 17  # counts the calls that had to wait for an instance
HEAD: Final = 18  # the ticket whose call is the next: below TICKETS while some wait
HEAD_NS: Final = 19  # since when it is, on the monotonic clock
FREED: Final = 20  # changes when an instance was given back while some wait; the next sleeps on it
RUN_NS: Final = 21  # how long the last run took that came to its end, 0 for unknown
FIRST: Final = 22  # address of the call record of the module's first instance: who waits for any looks there
GATES: Final = 23  # the others sleep on these words, by their tickets
GATE_COUNT: Final = 16
RECORD_SLOTS: Final = GATES + GATE_COUNT

# Tensor row.
DTYPE: Final = 0  # address of NumPy's object for the element type
RANK: Final = 1
SHAPE: Final = 2  # address of the extents
BYTES: Final = 3
PADDED: Final = 4  # bytes to allocate such that an aligned part has room
PLACE: Final = 5  # of an output the number of the input whose memory it may have, else -1
TENSOR_SLOTS: Final = 6

# Pool state.
LINE: Final = 16
GENERATION: Final = (
    0  # odd during a run, and larger by two from one to the next; workers wait for it to change
)
PROGRAM: Final = 1  # address of the program of this run
EVENTS: Final = 2  # address of the event rows, 0 for none
STOP: Final = 3
SPIN_NS: Final = 4  # how long a worker that waits spins at most, before it sleeps
TURN: Final = 5  # mutex: whoever has it has the workers for a run
SERVING: Final = 6  # how many workers wait for runs or take part in one
BASE: Final = 7  # commands of the runs before: numbers of commands go on from it
PARKED: Final = LINE  # how many workers sleep until the next run
SLEEPERS: Final = LINE + 1  # how many sleep until others are done with something
WOKEN: Final = LINE + 2  # counts how often those were woken: the word that they sleep on
WORKERS: Final = 2 * LINE  # start of the workers' own slots
WORKER_SLOTS: Final = 2 * LINE
CLAIMS: Final = 1 << 16  # more than a worker's range of a command has units
RING: Final = 8  # so many commands that workers share may be in progress at a time
DONE: Final = (
    0  # a ring: at a command's number modulo RING, the number times CLAIMS, plus units that this worker ran
)
INSIDE: Final = RING  # 1 while the worker may read the program: the run does not end meanwhile
PATIENCE_NS: Final = RING + 1  # how long it spins now; private to the worker
ARRIVED: Final = RING + 2  # of worker 0: the last command that it alone ran and that others wait for
GAP_NS: Final = RING + 3  # how long its last wait for a run took; private to the worker
CLAIMED: Final = LINE  # the command that was claimed from last times CLAIMS; plus units claimed
SERVED: Final = LINE + 1  # 1 while a thread is this worker

# Shares, after the workers' own slots; nobody writes them during a run.
SEEN: Final = 0  # shared tiles of the runs since the last one that was sampled
WINDOW: Final = 1  # how many there must be until the next; 0: shares stay as they are
SHARES: Final = 2  # workers + 1 bounds of the workers' ranges, from 0 to WHOLE
WHOLE: Final = 1 << 30  # all tiles of a command
# Two more slots a worker follow: its part of the speed as estimated, and what a sample adds up to.

# Event row of one worker and one command; times in ns of the monotonic clock.
BEGIN: Final = 0
END: Final = 1  # the end of its last tile
MET: Final = 2  # the caller knew all workers done with the command; worker 0 only
TILES_RUN: Final = 3
TILES_STOLEN: Final = 4  # of these, from another worker's range
BUSY: Final = (
    5  # ns from each begin to the last tile; of a command that is repeated BEGIN is the first, END the last
)
EVENT_SLOTS: Final = 6


def state_slots(workers: int) -> int:
    """Return slots of the state of a pool."""
    return shares_at(workers) + SHARES + workers + 1 + 2 * workers


def shares_at(workers: int) -> int:
    """Return the begin of the shares in the state of a pool."""
    return WORKERS + workers * WORKER_SLOTS
