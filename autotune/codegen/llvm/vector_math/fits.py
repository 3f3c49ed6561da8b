"""Polynomial coefficients of the vector functions, lowest power first.

Each tuple is the minimax fit of the expression named beside it over the interval of the range
reduction, weighted so that the error is relative to the function's own value: by the Remez exchange in
50 decimal digits, or where the comment says so by reweighted least squares in float64 (Lawson 1961).
Coefficients were rounded to the type they are used in one at a time from the
lowest power, refitting the rest after each (Brisebarre and Chevillard 2007 have the lattice form of
that idea). The comment gives the largest weighted error after rounding.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "ATANH_TAIL",
    "ERF_LARGE",
    "ERF_PIECES",
    "ERF_SMALL",
    "ERF_STEP",
    "EXP",
    "EXP2_NARROW",
    "EXP_NARROW",
    "LOG1P_TAIL",
    "LOG2_WIDE",
    "LOG_TAIL",
    "TANH_BORDER",
    "TANH_PIECES",
    "TANH_SMALL",
]


def _table(text: str) -> tuple[float, ...]:
    return tuple(float.fromhex(word) for word in text.split())


EXP: Final = {
    # (exp(r) - 1 - r) / r**2 for |r| <= ln2/2, relative to expm1(r)
    "float32": _table(  # 2**-26.1
        "0x1.fffffep-2 0x1.5554a8p-3 0x1.555796p-5 0x1.122e28p-7 0x1.6abe00p-10"
    ),
    "float64": _table(  # 2**-55.3
        "0x1.0000000000005p-1 0x1.55555555554fdp-3 0x1.5555555551e77p-5 0x1.111111112d23dp-7 "
        "0x1.6c16c1802855fp-10 0x1.a01a00ef56d34p-13 0x1.a019a326df5efp-16 0x1.71dfe42382f86p-19 "
        "0x1.28a65fba7ba7bp-22 0x1.abfe35d7f8761p-26"
    ),
}

# (exp(r) - 1 - r) / r**2 for |r| <= ln2/32, for float32's exp by a table of sixteenths of octaves; by Lawson's weights,
# the error relative to exp(r); 2**-29.2
EXP_NARROW: Final = _table("0x1.00021ep-1 0x1.555594p-3")

LOG_TAIL: Final = {
    # float32: (log1p(f) - f + f**2/2) / f**3 for sqrt(1/2) <= 1+f <= sqrt(2); 2**-27.2
    "float32": _table(
        "0x1.555554p-2 -0x1.000228p-2 0x1.99a038p-3 -0x1.5471f4p-3 0x1.22d552p-3 -0x1.0d8364p-3 "
        "0x1.057ec2p-3 -0x1.391c7ap-4"
    ),
    # float64: (2*atanh(s) - 2*s) / s**3 in powers of s**2, s = f/(2+f); 2**-59.5
    "float64": _table(
        "0x1.5555555555593p-1 0x1.999999997f9f6p-2 0x1.249249422a71cp-2 0x1.c71c51d7a52fbp-3 "
        "0x1.746649b8b9a56p-3 0x1.39a0949858411p-3 0x1.2f11891001218p-3"
    ),
}

ERF_SMALL: Final = {
    # erf(x)/x - 1 in powers of x**2 for 0 <= x <= 1
    "float32": _table(  # 2**-29.2
        "0x1.06eba8p-3 -0x1.81273ep-2 0x1.ce2ce6p-4 -0x1.b7f71ap-6 0x1.53f224p-8 -0x1.a3516ap-11 "
        "0x1.47722ep-14"
    ),
    "float64": _table(  # 2**-56.0
        "0x1.06eba8214db68p-3 -0x1.812746b03799dp-2 0x1.ce2f21a03f8b9p-4 -0x1.b82ce311a97d5p-6 "
        "0x1.565bcceeda342p-8 -0x1.c02daeb702b64p-11 0x1.f9a296b448912p-14 -0x1.f4c82efddb8f8p-17 "
        "0x1.b96b572c78da0p-20 -0x1.5b8c6a684ec04p-23 0x1.d3dd94cccc0a7p-27 -0x1.a23db640bdf65p-31"
    ),
}

ERF_LARGE: Final = {
    # -log(erfc(x)) for 1 <= x <= 4 (float32), 6 (float64), weighted by erfc(x)/erf(x)
    "float32": _table(  # 2**-32.2
        "-0x1.8b3e0ep-13 0x1.212c2cp+0 0x1.4434f6p-1 0x1.bc1898p-4 -0x1.9d0b48p-6 0x1.139852p-8 "
        "-0x1.cee9d4p-12 0x1.6c0738p-16"
    ),
    "float64": _table(  # 2**-56.9
        "0x1.f8890b2d01119p-22 0x1.20dd24fcd2d2cp+0 0x1.45f5fa9e9682fp-1 0x1.a4b018190b1e6p-4 "
        "-0x1.373e1f2c34ff5p-6 -0x1.a545500f55df3p-12 0x1.f3de702568b50p-10 "
        "-0x1.9040baefe4f67p-11 0x1.11caaec41547fp-13 0x1.790e1050c3f8fp-16 "
        "-0x1.8d3c6d3ef031dp-16 0x1.2b86589a6eee3p-17 -0x1.26d3ac85b9bf6p-19 "
        "0x1.9c7da2132f2d2p-22 -0x1.9aef6b8fba39ep-25 0x1.171dfa0e710c3p-28 "
        "-0x1.d138fc2397126p-33 0x1.6798ba36b38d5p-38"
    ),
}

# erf(n*ERF_STEP + t) in powers of t for n from 0 to 15, |t| <= ERF_STEP/2, for float32's erf; row 0 without t itself.
# The step is chosen such that each erf(n*ERF_STEP), the coefficient of t**0, is within 0.3 ulp of a float32 number (Gal
# and Bachelis 1991), which is most of the error. By Lawson's weights; 2**-25.4 in row 3, 2**-27.9 in row 0.
ERF_STEP: Final = float.fromhex("0x1.089c68p-2")
ERF_PIECES: Final = (
    _table("0x0p+0 0x1.06eba8p-3 0x0p+0 -0x1.81265ep-2 0x0p+0 0x1.cb953p-4 0x0p+0"),
    _table(
        "0x1.24110cp-2 0x1.0e34b8p+0 -0x1.174bcp-2 -0x1.3827dcp-2 0x1.0b2bdep-3 0x1.3dcb6ap-4 -0x1.7c527ep-5"
    ),
    _table(
        "0x1.11ffc6p-1 0x1.ba4ec4p-1 -0x1.c92dc8p-2 -0x1.12b4a8p-3 0x1.75c7bep-3 0x1.3a29fap-9 -0x1.8ad6a2p-7"
    ),
    _table(
        "0x1.74425ap-1 0x1.3cc156p-1 -0x1.eb18d4p-2 0x1.5537aap-5 0x1.20efcep-3 -0x1.d53f4p-5 0x1.3e63eep-4"
    ),
    _table(
        "0x1.b65fcp-1 0x1.8cf72ep-2 -0x1.9a4e2ap-2 0x1.2cd9c8p-3 0x1.c85266p-5 -0x1.15cf7ep-4 0x1.56ee52p-4"
    ),
    _table(
        "0x1.dd5af6p-1 0x1.b34afap-3 -0x1.1938dcp-2 0x1.53594ep-3 "
        "-0x1.ba4174p-7 -0x1.54fcb2p-5 -0x1.d8f6e4p-5"
    ),
    _table(
        "0x1.f17e9ep-1 0x1.a1a5ccp-4 -0x1.43c14ap-3 0x1.090ebep-3 -0x1.90f7e8p-5 -0x1.35fc6cp-7 0x1.1dc138p-4"
    ),
    _table(
        "0x1.fa9c9ap-1 0x1.5e9f0cp-5 -0x1.3d1f44p-4 0x1.43f8d6p-4 -0x1.73cc4ap-5 0x1.308056p-7 -0x1.bfa0d2p-8"
    ),
    _table(
        "0x1.fe3a6ep-1 0x1.018d8p-6 -0x1.0a424cp-5 0x1.43f89p-5 -0x1.de8f54p-6 0x1.a7acb4p-7 -0x1.17e662p-5"
    ),
    _table(
        "0x1.ff7c38p-1 0x1.4b12b4p-8 -0x1.809262p-7 0x1.0edc9p-6 -0x1.1bd1d8p-6 0x1.300ddap-7 0x1.3ccdb6p-4"
    ),
    _table(
        "0x1.ffde38p-1 0x1.746026p-10 -0x1.e0983cp-9 0x1.7f645ep-8 -0x1.c98fdcp-8 0x1.3ac9b4p-8 0x1.7e99fap-6"
    ),
    _table(
        "0x1.fff85ep-1 0x1.6e785p-12 -0x1.0126f4p-10 0x1.cef098p-10 "
        "-0x1.11533ap-8 0x1.0116cep-9 0x1.407b94p-4"
    ),
    _table(
        "0x1.fffe7cp-1 0x1.3b91dcp-14 -0x1.07816ep-12 0x1.df636ap-12 "
        "0x1.25cf34p-9 0x1.5653eep-11 -0x1.d7cac2p-4"
    ),
    _table(
        "0x1.ffffbcp-1 0x1.db88bcp-17 -0x1.8c11bcp-15 0x1.ab5cc6p-14 "
        "-0x1.c9083cp-13 0x1.7957ecp-13 0x1.3252fap-9"
    ),
    _table(
        "0x1.fffff6p-1 0x1.39803ep-19 -0x1.847ba6p-16 0x1.48c5fcp-16 "
        "0x1.2f72bcp-9 0x1.61d0c8p-15 -0x1.8011e2p-4"
    ),
    _table(
        "0x1.fffffep-1 0x1.69ae48p-22 0x1.25a4e4p-16 0x1.b598a6p-19 "
        "-0x1.8a5b4p-9 0x1.1825c4p-17 0x1.eaf95ap-4"
    ),
)

# log2(1+f)/f for sqrt(1/2) <= 1+f <= sqrt(2), evaluated in float64 for float32's pow; 2**-32.7.
# This one and the next two are fitted by Lawson's weights in float64, rounded one at a time.
LOG2_WIDE: Final = _table(
    "0x1.71547652ef95ap+0 -0x1.7154767baebbbp-1 0x1.ec709c00ee22fp-2 -0x1.715435eba0d63p-2 "
    "0x1.277732cefe56cp-2 -0x1.ec8d73d2c9e38p-3 0x1.a615cb338cec3p-3 -0x1.6eb02b2412c1dp-3 "
    "0x1.45a294558f968p-3 -0x1.417feb0a78592p-3 0x1.3d25ef527473fp-3 -0x1.61ac4eb588bb8p-4"
)

# (tanh(x)/x - 1) / x**2 in powers of x**2 for |x| <= TANH_BORDER, for float32's tanh; 2**-29.4.
# Past the border tanh is above a half, so that 1 - 1/(...) loses no bit.
TANH_BORDER: Final = 0.5625
TANH_SMALL: Final = _table("-0x1.555548p-2 0x1.110c5ap-3 -0x1.b90496p-5 0x1.5804c2p-6 -0x1.93fa6cp-8")

# (log1p(r) - r + r**2/2) / r**3; times r**2 it is a share of log1p(r)/r, and the error is relative to that
LOG1P_TAIL: Final = {
    # |r| <= 1/32, by Lawson's weights; 2**-37.2
    "float32": _table("0x1.555552p-2 -0x1.fffff4p-3 0x1.99f9fep-3 -0x1.55c5a6p-3"),
    # |r| <= 1/16, by interpolation in Chebyshev's nodes in 70 decimal digits; 2**-63.4
    "float64": _table(
        "0x1.5555555555555p-2 -0x1.000000000000dp-2 0x1.99999999999b1p-3 -0x1.55555555359cfp-3 "
        "0x1.2492492474ad8p-3 -0x1.000000b18e53bp-3 0x1.c71c731292cc7p-4 -0x1.99966ea241e58p-4 "
        "0x1.745a225211b31p-4 -0x1.587ebdc1f67bdp-4 0x1.3e072d825a166p-4"
    ),
}

# tanh(c + t) in powers of t, for float32's tanh: c, then the coefficients, of 16 halves of octaves from 3/64 to 12. The
# bits of c above the 22nd, modulo 16, are the row; row 5 serves from 0 on. Each c is chosen such that tanh(c), the
# coefficient of t**0, is within 0.002 ulp of a float32 number (Gal and Bachelis 1991). By Lawson's weights; 2**-24.5
# in row 4, below 2**-25.5 elsewhere.
TANH_PIECES: Final = (
    _table(
        "0x1.3fe974p+1 0x1.f9231cp-1 0x1.b447dp-6 -0x1.ae6d8p-6 "
        "0x1.172e1ep-6 -0x1.082a16p-7 0x1.7ac3cap-9 -0x1.6d18d2p-11"
    ),
    _table(
        "0x1.bfeb86p+1 0x1.ff10ep-1 0x1.ddd29ep-9 -0x1.dcf28ap-9 "
        "0x1.3c81cp-9 -0x1.3a462ep-10 0x1.015b2cp-11 -0x1.4ab5fcp-13"
    ),
    _table(
        "0x1.3fec2p+2 0x1.fff412p-1 0x1.7e445cp-13 -0x1.7e16e6p-13 "
        "0x1.f3e6b2p-14 -0x1.f50c7ep-15 0x1.de1b5cp-16 -0x1.3ac2dap-17"
    ),
    _table(
        "0x1.bfe89p+2 0x1.ffffc8p-1 0x1.bfda7cp-19 -0x1.bf34bep-19 "
        "0x1.26cc1ep-19 -0x1.2935e2p-20 0x1.144298p-21 -0x1.658b26p-23"
    ),
    _table(
        "0x1.10695cp+3 0x1.fffffep-1 0x1.59f2dep-23 -0x1.a85204p-20 "
        "0x1.fccaecp-24 0x1.dfb95cp-17 -0x1.d05cd4p-26 -0x1.31002ap-15"
    ),
    _table("0x0p+0 0x0p+0 0x1p+0 0x0p+0 -0x1.55553ep-2 0x0p+0 0x1.107868p-3 0x0p+0"),
    _table(
        "0x1.3feaf2p-4 0x1.3f44dp-4 0x1.fce3a6p-1 -0x1.3d54bp-4 "
        "-0x1.4ca46ap-2 0x1.d654acp-5 -0x1.42829ep+0 -0x1.3597f6p+4"
    ),
    _table(
        "0x1.bfe9aep-4 0x1.be22cap-4 0x1.f9ed06p-1 -0x1.b8d758p-4 "
        "-0x1.45844p-2 0x1.0b970cp-4 0x1.c1a18ap-1 0x1.b9b32ep+3"
    ),
    _table(
        "0x1.3febc8p-3 0x1.3d580cp-3 0x1.f3b4e6p-1 -0x1.35b98p-3 "
        "-0x1.351036p-2 0x1.901016p-4 0x1.6f2696p-5 -0x1.c0f662p-2"
    ),
    _table(
        "0x1.bfe8cp-3 0x1.b8e6d8p-3 0x1.e8452ep-1 -0x1.a4777ap-3 "
        "-0x1.18578ep-2 0x1.03799cp-3 0x1.3ee628p-3 0x1.99ed7cp-2"
    ),
    _table(
        "0x1.3fe8fap-2 0x1.35e4ap-2 0x1.d11bcap-1 -0x1.1982ecp-2 "
        "-0x1.c1ceacp-3 0x1.43916cp-3 0x1.9e3ea6p-5 -0x1.b16652p-5"
    ),
    _table(
        "0x1.bfe8a2p-2 0x1.a55f36p-2 0x1.a94db6p-1 -0x1.5e057ep-2 "
        "-0x1.16f7d2p-3 0x1.5c344p-3 -0x1.425e8cp-7 -0x1.12ca22p-4"
    ),
    _table(
        "0x1.3fea36p-1 0x1.1be568p-1 0x1.62958p-1 -0x1.8939p-2 "
        "-0x1.25ceeap-6 0x1.1a7aacp-3 -0x1.bb789cp-5 -0x1.80e778p-6"
    ),
    _table(
        "0x1.bfe934p-1 0x1.685adp-1 0x1.02603cp-1 -0x1.6bb2fap-2 "
        "0x1.4ee264p-4 0x1.f269e8p-5 -0x1.de1764p-5 0x1.b0389p-7"
    ),
    _table(
        "0x1.3febb6p+0 0x1.b246dap-1 0x1.1f4baap-2 -0x1.e75dd8p-3 "
        "0x1.bbc3ep-4 -0x1.9b68bap-7 -0x1.42f6bep-6 0x1.eee3f6p-7"
    ),
    _table(
        "0x1.bfec0ap+0 0x1.e1f76ep-1 0x1.d27108p-4 -0x1.b7149ap-4 "
        "0x1.01df06p-4 -0x1.81825cp-6 0x1.c80f56p-9 0x1.12e948p-9"
    ),
)

# 2**r for |r| <= 1/2, for float32's tanh and pow; 2**-28.3
EXP2_NARROW: Final = _table(
    "0x1.000000p+0 0x1.62e430p-1 0x1.ebfbdcp-3 0x1.c6af7cp-5 0x1.3b2de0p-7 0x1.5f082ep-10 0x1.416b52p-13"
)

# (2*atanh(s)/s - 2 - 2/3*s**2) / s**4 in powers of s**2, for float64's pow; 2**-73.5
ATANH_TAIL: Final = _table(
    "0x1.9999999999996p-2 0x1.2492492492f55p-2 0x1.c71c71c595bfep-3 0x1.745d1829d8a67p-3 "
    "0x1.3b1364a0569ffp-3 0x1.11207614b37f6p-3 0x1.de3c3fbba6869p-4 0x1.ead0540466d0cp-4"
)
