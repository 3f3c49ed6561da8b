"""Objects mapped without LLVM: references, protection, damage."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from autotune.codegen.elf import EXECUTE, WRITE, read_object
from autotune.codegen.jit import LoadedCode
from autotune.codegen.link import LinkedCode
from autotune.codegen.llvm import compile_ir
from autotune.codegen.process_symbols import process_address
from autotune.codegen.relocations import encoded, jump
from autotune.errors import BuildError
from autotune.hardware import architecture
from autotune.target import Target

pytestmark = pytest.mark.skipif(
    architecture() != "x86_64", reason="LLVM maps the code of other architectures"
)

REFERENCES = """
declare double @cos(double)
@table = private constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]
@counter = internal global i64 5
@zeros = internal global [1000 x i64] zeroinitializer
@shown = global i64 7
@pointers = internal constant [2 x ptr] [ptr @double, ptr @counted]

define i64 @entry(i64 %i) {
  %at = getelementptr [4 x i64], ptr @table, i64 0, i64 %i
  %x = load i64, ptr %at
  %f = getelementptr [2 x ptr], ptr @pointers, i64 0, i64 0
  %function = load volatile ptr, ptr %f
  %y = call i64 %function(i64 %x)
  %z = call i64 @counted(i64 %y)
  %far = getelementptr [1000 x i64], ptr @zeros, i64 0, i64 999
  %nothing = load volatile i64, ptr %far
  %seven = load volatile i64, ptr @shown
  %one = call double @cos(double 0.0)
  %two = fptosi double %one to i64
  %a = add i64 %z, %nothing
  %b = add i64 %a, %seven
  %c = add i64 %b, %two
  ret i64 %c
}
define i64 @double(i64 %x) noinline {
  %y = mul i64 %x, 2
  ret i64 %y
}
define i64 @counted(i64 %x) noinline {
  %old = load i64, ptr @counter
  %new = add i64 %old, 1
  store i64 %new, ptr @counter
  %y = add i64 %x, %new
  ret i64 %y
}
"""
"""Constants, zeros and variables of an object's own, pointers to functions, and a function of the process."""


def code() -> bytes:
    return compile_ir(REFERENCES, Target.detect())


def linked(data: bytes) -> LinkedCode:
    return LinkedCode([read_object(data)], process_address)


def entry(made: LinkedCode) -> ctypes._CFunctionType:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(made.address(0, "entry"))


def test_code_constants_variables_and_the_process_find_each_other() -> None:
    made = linked(code())
    assert [entry(made)(i) for i in range(4)] == [20 + 6 + 8, 40 + 7 + 8, 60 + 8 + 8, 80 + 9 + 8]


def test_copies_of_an_object_have_variables_of_their_own() -> None:
    made = LinkedCode([read_object(code())] * 2, process_address)
    functions = [ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(made.address(i, "entry")) for i in (0, 1)]
    assert [f(0) for f in functions] == [34, 34]


def protection(address: int) -> str:
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end, flags = re.match(r"(\w+)-(\w+) (\S+)", line).groups()  # type: ignore[union-attr]
        if int(begin, 16) <= address < int(end, 16):
            return flags
    return "none"


def test_code_is_not_writable_and_data_not_executable() -> None:
    made = linked(code())
    placed = made._placed[0]
    flags = {number: placed.object.sections[number].flags & (WRITE | EXECUTE) for number in placed.sections}
    found = {flags[number]: protection(made._memory.address + at) for number, at in placed.sections.items()}
    assert found == {EXECUTE: "r-xp", 0: "r--p", WRITE: "rw-p"}


def test_only_functions_have_addresses() -> None:
    made = linked(code())
    assert made.address(0, "shown") == 0
    assert made.address(0, "nobody") == 0
    with pytest.raises(BuildError, match="symbol 'shown' of object 0 is not a function"):
        LoadedCode([code()]).address(0, "shown")


UNKNOWN = {("large", "pic"), ("jitdefault", "pic"), ("small", "static"), ("default", "static")}
"""Code that reaches 64 bits by a table of addresses, or the process by 32: neither is made here."""


def test_it_maps_what_llvm_maps() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    for model in ("default", "small", "large", "jitdefault"):
        for kind in ("pic", "static"):
            machine = llvm.Target.from_default_triple().create_target_machine(codemodel=model, reloc=kind)
            data = bytes(machine.emit_object(llvm.parse_assembly(REFERENCES)))
            if (model, kind) in UNKNOWN:
                with pytest.raises(BuildError, match=r"too far|relocation of kind"):
                    linked(data)
            else:
                made = linked(data)  # unmapped with it
                assert entry(made)(0) == 34, (model, kind)


def test_damage_is_an_error_or_harmless() -> None:
    good = code()
    refused = 0
    for position in range(len(good)):
        for value in {0x00, 0xFF, good[position] ^ 0x10} - {good[position]}:
            damaged = bytearray(good)
            damaged[position] = value
            try:
                linked(bytes(damaged))
            except BuildError:
                refused += 1
    assert refused > 100


def relocation_at(data: bytes) -> int:
    """Return the place of the code's first relocation."""
    sections = read_object(data).sections
    return next(s.offset for s in sections if s.kind == 4 and sections[s.info].flags & 4)


def test_a_relocation_behind_the_end_is_refused() -> None:
    data = bytearray(code())
    at = relocation_at(data)
    data[at : at + 8] = (1 << 20).to_bytes(8, "little")
    with pytest.raises(BuildError, match="object 0 cannot be loaded: a relocation behind the end of section"):
        linked(bytes(data))


def test_an_unknown_relocation_is_refused() -> None:
    data = bytearray(code())
    data[relocation_at(data) + 8] = 99
    with pytest.raises(BuildError, match="relocation of kind 99; known are R_X86_64_64, R_X86_64_PC32"):
        linked(bytes(data))


def test_a_reference_to_nothing_is_refused() -> None:
    data = bytearray(code())
    at = relocation_at(data)
    data[at + 12 : at + 16] = bytes(4)
    with pytest.raises(BuildError, match="it needs '', which this process does not have"):
        linked(bytes(data))


def test_what_32_bits_do_not_reach_is_an_error() -> None:
    assert encoded(2, 0x1000, 0x2000) == (-0x1000).to_bytes(4, "little", signed=True)
    with pytest.raises(BuildError, match="R_X86_64_PC32: 0x200000000 is too far from 0x1000"):
        encoded(2, 0x2_0000_0000, 0x1000)


def test_a_jump_is_two_words() -> None:
    assert len(jump(1)) == 16
    assert jump(0x1234)[8:] == (0x1234).to_bytes(8, "little")


def test_names_that_the_process_has_not() -> None:
    assert process_address("memcpy")
    assert process_address("expf")
    assert process_address("no_such_function") == 0
    assert process_address("") == 0
    assert process_address("a\0b") == 0
