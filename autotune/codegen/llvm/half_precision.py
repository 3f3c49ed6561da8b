"""float16 to float32 and back where no instruction does it: functions in LLVM IR under the names that LLVM calls.

On a processor without F16C LLVM calls what is a library of a C compiler elsewhere. The steps are those of F. Giesen,
"Half to float done quick" and its reverse.
"""

from __future__ import annotations

from collections.abc import Iterable

_EXTEND = """
define internal float @__extendhfsf2(half %x) {
  %short = bitcast half %x to i16
  %word = zext i16 %short to i32
  %magnitude = and i32 %word, 32767
  %placed = shl i32 %magnitude, 13
  %exponent = and i32 %placed, 260046848
  %normal = add i32 %placed, 939524096            ; the bias: 127 - 15
  %special = or i32 %placed, 2139095040
  ; A subnormal's fraction behind the exponent -14, less the one that this implies.
  %raised = add i32 %normal, 8388608
  %above = bitcast i32 %raised to float
  %exact = fsub float %above, 0x3F10000000000000
  %subnormal = bitcast float %exact to i32
  %is_special = icmp eq i32 %exponent, 260046848
  %is_subnormal = icmp eq i32 %exponent, 0
  %finite = select i1 %is_subnormal, i32 %subnormal, i32 %normal
  %value = select i1 %is_special, i32 %special, i32 %finite
  %signed = and i32 %word, 32768
  %sign = shl i32 %signed, 16
  %bits = or i32 %value, %sign
  %result = bitcast i32 %bits to float
  ret float %result
}"""

_TRUNCATE = """
define internal half @__truncsfhf2(float %x) {
  %word = bitcast float %x to i32
  %magnitude = and i32 %word, 2147483647
  ; Adding just less than a half of the last bit kept, and one more where that is set, carries where it should.
  %shifted = lshr i32 %magnitude, 13
  %odd = and i32 %shifted, 1
  %bias = add i32 %odd, 3355447295                ; (15 - 127) << 23 and 0xfff
  %carried = add i32 %magnitude, %bias
  %normal = lshr i32 %carried, 13
  ; Beside 0.5 a float32 has the last bit that a subnormal float16 has: the addition rounds.
  %absolute = bitcast i32 %magnitude to float
  %aligned = fadd float %absolute, 5.0e-01
  %rounded = bitcast float %aligned to i32
  %subnormal = sub i32 %rounded, 1056964608
  %payload = and i32 %shifted, 1023
  %quiet = or i32 %payload, 32256
  %is_nan = icmp ugt i32 %magnitude, 2139095040
  %special = select i1 %is_nan, i32 %quiet, i32 31744
  %is_special = icmp uge i32 %magnitude, 1199570944
  %is_subnormal = icmp ult i32 %magnitude, 947912704
  %finite = select i1 %is_subnormal, i32 %subnormal, i32 %normal
  %value = select i1 %is_special, i32 %special, i32 %finite
  %high = lshr i32 %word, 16
  %sign = and i32 %high, 32768
  %bits = or i32 %value, %sign
  %short = trunc i32 %bits to i16
  %result = bitcast i16 %short to half
  ret half %result
}"""

FUNCTIONS = {"__extendhfsf2": _EXTEND, "__truncsfhf2": _TRUNCATE}
"""The functions that LLVM calls for float16 where no instruction does, and the text that defines each."""


def definitions(names: Iterable[str]) -> str:
    """Return LLVM IR of the functions, kept although no text calls them."""
    wanted = sorted(names)
    used = ", ".join(f"ptr @{name}" for name in wanted)
    kept = f'@llvm.compiler.used = appending global [{len(wanted)} x ptr] [{used}], section "llvm.metadata"'
    return "\n".join([*(FUNCTIONS[name] for name in wanted), kept])


__all__ = ["FUNCTIONS", "definitions"]
