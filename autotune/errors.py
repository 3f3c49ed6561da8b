"""The one exception tree: a base class for each audience.

::

    AutotuneError
    ├── UsageError                a wrong argument, file name, option or target      (exit code 2)
    │   ├── TargetError           a target that is not known
    │   ├── MissingExtraError     an optional dependency that is not installed
    │   ├── PlacementError        devices named for a model that contradict one another, or are not there
    │   └── InputError            run-time inputs of the wrong name, shape or dtype
    ├── ModelImportError          a model that cannot be read or is not supported
    │   └── UnsupportedOpError    operators without a definition here, all of them listed
    ├── PaddingError              a model that cannot answer requests of other sizes than it is compiled for
    │   └── UndecidedExtentError  ... because what was seen of an extent fits several expressions
    ├── GraphError                a graph that breaks the rules of the graph IR
    ├── ScheduleError             an illegal schedule step, or a trace that does not apply
    ├── LoweringError             a schedule that has no loop nest
    ├── KnobError                 a knob value or a configuration outside its space
    ├── BuildError                code generation or loading failed
    ├── DeviceError               a device failed at a command that was submitted to it
    │   ├── DeviceMemoryError     ... it has no memory for what was asked
    │   ├── DeviceTimeoutError    ... what was waited for did not come in time
    │   ├── DeviceClosedError     ... it, or its queue, was closed
    │   ├── DeviceLostError       ... it does not answer any more
    │   └── CancelledWorkError    ... the submission was cancelled
    ├── ArtifactError             a compiled artifact that is damaged or from another machine
    ├── LockError                 a lock file that is damaged, or does not fit the model
    ├── DatabaseError             the tuning database cannot be used
    │   ├── PackError             a pack that is damaged, altered or of another version
    │   └── SchemaVersionError    ... because it was written by another version
    ├── StudyError                the studies of a search cannot be opened, read or written
    ├── MeasureError              the measuring pool itself failed (not a candidate)
    │   └── NoReferenceError      ... at what the candidates of a workload are checked against
    ├── CostModelError            a cost model that cannot be trained, read or used
    ├── MissError                 no schedule is known and the caller required one
    └── InternalError             a bug of ours: please report it with the text

A message says what went wrong first, then where, what was found, and what is allowed or what to do next.
"""

from __future__ import annotations

from collections.abc import Mapping

from autotune.foreign import printable


class AutotuneError(Exception):
    """Base of every error that this package raises on purpose; names of others are printable in its text."""

    exit_code = 1

    def __str__(self) -> str:
        return printable(super().__str__())


class UsageError(AutotuneError):
    """A wrong argument, file name or option."""

    exit_code = 2


class TargetError(UsageError):
    """A target that is not known."""


class MissingExtraError(UsageError):
    """An optional dependency is not installed; the message names the extra."""


class PlacementError(UsageError):
    """Devices that are named for a model contradict one another, are not there, or are named for nothing."""


class ModelImportError(AutotuneError):
    """A model that cannot be read or is not supported."""


class UnknownParameterError(ModelImportError):
    """A value decides what is compiled (a shape, axes, bounds), but depends on inputs; ``inputs`` are those."""

    def __init__(self, message: str, inputs: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.inputs = inputs


class ComputedLengthError(ModelImportError):
    """A node reads a value whose length is known only when it is computed, and looks along it."""


class UnsupportedOpError(ModelImportError):
    """The model uses operators that have no definition here; all of them are listed."""


class PaddingError(AutotuneError):
    """A model cannot answer requests of other sizes than it is compiled for; the message says which node and why."""


class UndecidedExtentError(PaddingError):
    """Several expressions give an extent of a model at all sizes seen; at ``sizes`` they differ."""

    def __init__(self, message: str, sizes: Mapping[str, int]) -> None:
        super().__init__(message)
        self.sizes = sizes


class GraphError(AutotuneError):
    """A graph that breaks the rules of the graph IR (wrong types, cycles, unknown values)."""


class InputError(UsageError):
    """Run-time inputs of the wrong name, shape or dtype."""


class ScheduleError(AutotuneError):
    """An illegal schedule step, or a trace that does not apply to this program."""


class LoweringError(AutotuneError):
    """A schedule that cannot be turned into a loop nest."""


class KnobError(AutotuneError):
    """A knob value or a configuration outside its search space."""


class BuildError(AutotuneError):
    """Code generation or loading of machine code failed."""


class DeviceError(AutotuneError):
    """A device failed at what was submitted to it; the message names the device, the command and the model's nodes.

    What waits for the failed work gets the same error; everything else goes on.
    """


class DeviceMemoryError(DeviceError):
    """A device has no memory for what was asked; the message lists who holds how much."""


class DeviceTimeoutError(DeviceError):
    """A point on a timeline, room in a queue or free memory did not come in time."""


class DeviceClosedError(DeviceError):
    """Work was submitted to a device or queue that was closed, or was waiting there when it was closed."""


class DeviceLostError(DeviceError):
    """A device does not answer any more; all that was submitted to it fails, and other devices go on."""


class CancelledWorkError(DeviceError):
    """A submission, or one that it waits for, was cancelled before it had run."""


class ArtifactError(AutotuneError):
    """A compiled artifact is damaged, of another version, or made for another machine."""


class LockError(AutotuneError):
    """A lock file is damaged, of another version, or does not fit the model."""


class DatabaseError(AutotuneError):
    """The tuning database cannot be opened, read or written."""


class SchemaVersionError(DatabaseError):
    """The tuning database was written by another version of the schema."""


class PackError(DatabaseError):
    """A pack of a tuning database is damaged, altered, of another version, or not signed by whom it should be."""


class StudyError(AutotuneError):
    """The studies of a search cannot be opened, read or written; the measured runs are stored all the same."""


class MeasureError(AutotuneError):
    """The measuring pool itself failed; a failing candidate is an outcome, not an error."""


class NoReferenceError(MeasureError):
    """The reference of a workload's candidates cannot be computed: none of them can be measured."""


class CostModelError(AutotuneError):
    """A cost model cannot be trained, read or used."""


class MissError(AutotuneError):
    """No schedule is known for a dispatch and the caller required one."""


class InternalError(AutotuneError):
    """A broken promise between our own parts."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or the name of its type where it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]


__all__ = [name for name, value in list(globals().items()) if isinstance(value, type)]
