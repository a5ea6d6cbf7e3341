"""The error function in float64: NumPy has none."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_Any = npt.NDArray[Any]
_Ratio = tuple[tuple[float, ...], tuple[float, ...]]
"""Numerator and denominator of a rational function, lowest power first."""

# Source: FreeBSD msun, s_erf.c (Sun Microsystems, 1993); error below 1 ulp.
_SMALL: Final[_Ratio] = (
    (
        0.128379167095512558561,
        -0.325042107247001499370,
        -0.0284817495755985104766,
        -0.00577027029648944159157,
        -0.0000237630166566501626084,
    ),
    (
        1.0,
        0.397917223959155352819,
        0.0650222499887672944485,
        0.00508130628187576562776,
        0.000132494738004321644526,
        -0.00000396022827877536812320,
    ),
)
_NEAR_ONE: Final[_Ratio] = (
    (
        -0.00236211856075265944077,
        0.414856118683748331666,
        -0.372207876035701323847,
        0.318346619901161753674,
        -0.110894694282396677476,
        0.0354783043256182359371,
        -0.00216637559486879084300,
    ),
    (
        1.0,
        0.106420880400844228286,
        0.540397917702171048937,
        0.0718286544141962662868,
        0.126171219808761642112,
        0.0136370839120290507362,
        0.0119844998467991074170,
    ),
)
_MIDDLE: Final[_Ratio] = (
    (
        -0.00986494403484714822705,
        -0.693858572707181764372,
        -10.5586262253232909814,
        -62.3753324503260060396,
        -162.396669462573470355,
        -184.605092906711035994,
        -81.2874355063065934246,
        -9.81432934416914548592,
    ),
    (
        1.0,
        19.6512716674392571292,
        137.657754143519042600,
        434.565877475229228821,
        645.387271733267880336,
        429.008140027567833386,
        108.635005541779435134,
        6.57024977031928170135,
        -0.0604244152148580987438,
    ),
)
_FAR: Final[_Ratio] = (
    (
        -0.00986494292470009928597,
        -0.799283237680523006574,
        -17.7579549177547519889,
        -160.636384855821916062,
        -637.566443368389627722,
        -1025.09513161107724954,
        -483.519191608651397019,
    ),
    (
        1.0,
        30.3380607434824582924,
        325.792512996573918826,
        1536.72958608443695994,
        3199.85821950859553908,
        2553.05040643316442583,
        474.528541206955367215,
        -22.4409524465858183362,
    ),
)
_AT_ONE: Final = 0.845062911510467529297
_BOUNDS: Final = (0.0, 0.84375, 1.25, 1 / 0.35, 6.0)


def erf(a: _Any) -> _Any:
    """The error function of any real array, as float64, within 1 ulp."""
    x = np.abs(np.asarray(a, dtype=np.float64))
    y = np.where(np.isnan(x), x, 1.0)
    small, near, middle, far = (
        (x >= low) & (x < high) for low, high in pairwise(_BOUNDS)
    )
    part = x[small]
    y[small] = part + part * _ratio(_SMALL, part * part)
    y[near] = _AT_ONE + _ratio(_NEAR_ONE, x[near] - 1)
    for where, table in ((middle, _MIDDLE), (far, _FAR)):
        part = x[where]
        square = part * part
        y[where] = 1 - np.exp(-square - 0.5625 + _ratio(table, 1 / square)) / part
    return np.copysign(y, a)


def _ratio(table: _Ratio, x: _Any) -> _Any:
    over, under = (np.polynomial.polynomial.polyval(x, part) for part in table)
    return np.asarray(over / under)
