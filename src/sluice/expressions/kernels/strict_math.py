"""exp, log, log10 and pow to the last binary digit as Spark computes them.

Spark calls Java's StrictMath, whose results are by definition those of the algorithms of fdlibm (Sun Microsystems),
step by step in IEEE doubles. The C library has others, which round one result in twenty differently. These are fdlibm's
algorithms for whole arrays: each numpy operation rounds once, as each of Java's does, so the digits are the same.

The constants are fdlibm's: an approximation's coefficients, or a number cut into a head with trailing zero bits, so
that products with it are exact, and a tail.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

Doubles: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.float64]]"

LN2, LN2_HEAD, LN2_TAIL = 6.93147180559945286227e-01, 6.93147180369123816490e-01, 1.90821492927058770002e-10
ONE_OVER_LN2 = 1.44269504088896338700e00
EXP = (
    1.66666666666666019037e-01,
    -2.77777777770155933842e-03,
    6.61375632143793436117e-05,
    -1.65339022054652515390e-06,
    4.13813679705723846039e-08,
)
LOG_EVEN = 3.999999999940941908e-01, 2.222219843214978396e-01, 1.531383769920937332e-01
LOG_ODD = 6.666666666666735130e-01, 2.857142874366239149e-01, 1.818357216161805012e-01, 1.479819860511658591e-01
ONE_OVER_LN10 = 4.34294481903251816668e-01
LOG10_2_HEAD, LOG10_2_TAIL = 3.01029995663611771306e-01, 3.69423907715893078616e-13
POW = (
    5.99999999999994648725e-01,
    4.28571428578550184252e-01,
    3.33333329818377432918e-01,
    2.72728123808534006489e-01,
    2.30660745775561754067e-01,
    2.06975017800338417784e-01,
)
POW_LN2_HEAD, POW_LN2_TAIL = 6.93147182464599609375e-01, -1.90465429995776804525e-09
POW_INVERSE_HEAD, POW_INVERSE_TAIL = 1.44269502162933349609e00, 1.92596299112661746887e-08  # of ln 2
LOG2_1_5_HEAD, LOG2_1_5_TAIL = 5.84962487220764160156e-01, 1.35003920212974897128e-08
TWO_THIRDS_LOG2_E = 9.61796693925975554329e-01
TWO_THIRDS_HEAD, TWO_THIRDS_TAIL = 9.61796700954437255859e-01, -7.02846165095275826516e-09
OVERFLOW_TAIL = 8.0085662595372944372e-17  # of log2 of what rounds to infinity, beyond 1024


def exp(x: Doubles) -> Doubles:
    with np.errstate(all="ignore"):
        size = _high(np.abs(x))
        reduced, near = size > 0x3FD62E42, size < 0x3FF0A2B2  # beyond half of ln 2, and below three halves of it
        turns = np.where(near, np.copysign(1.0, x), np.trunc(ONE_OVER_LN2 * x + np.copysign(0.5, x)))
        turns = np.where(reduced & (x > -746.0) & (x < 710.0), turns, 0.0)
        head, tail = x - turns * LN2_HEAD, turns * LN2_TAIL
        rest = head - tail
        square = rest * rest
        c = rest - square * _polynomial(square, EXP)
        small = 1.0 - ((rest * c) / (c - 2.0) - rest)
        large = np.ldexp(1.0 - ((tail - (rest * c) / (2.0 - c)) - head), turns.astype(np.int32))
        result = np.where(turns == 0, small, large)
        result = np.where(size < 0x3E300000, 1.0 + x, result)
        result = np.where(x > 7.09782712893383973096e02, np.inf, result)
        return np.where(x < -7.45133219101941108420e02, 0.0, np.where(np.isnan(x), x, result))


def log(x: Doubles) -> Doubles:
    """Of numbers greater than zero."""
    with np.errstate(all="ignore"):
        normal, exponent = _normalise(x, 54)
        fraction = _high(normal) & 0xFFFFF
        up = (fraction + 0x95F64) >> 20  # from about the root of 2 on, the power of two above is the nearer one
        f = _with_exponent(normal, 0x3FF - up) - 1.0
        power = (exponent + up).astype(np.float64)
        s = f / (2.0 + f)
        z = s * s
        w = z * z
        series = z * _polynomial(w, LOG_ODD) + w * _polynomial(w, LOG_EVEN)
        half = 0.5 * f * f
        middle = ((fraction - 0x6147A) | (0x6B851 - fraction)) > 0
        high, low = power * LN2_HEAD, power * LN2_TAIL
        wide = np.where(power == 0, f - (half - s * (half + series)), high - ((half - (s * (half + series) + low)) - f))
        narrow = np.where(power == 0, f - s * (f - series), high - ((s * (f - series) - low) - f))
        cube = f * f * (0.5 - 0.33333333333333333 * f)
        tiny = np.where(power == 0, f - cube, np.where(f == 0, high + low, high - ((cube - low) - f)))
        result = np.where((0xFFFFF & (2 + fraction)) < 3, tiny, np.where(middle, wide, narrow))
        return np.where(np.isfinite(x), result, x)


def log10(x: Doubles) -> Doubles:
    """Of numbers greater than zero."""
    with np.errstate(all="ignore"):
        normal, exponent = _normalise(x, 54)
        below = (exponent < 0).astype(np.int64)
        power = (exponent + below).astype(np.float64)
        fraction = _with_exponent(normal, 0x3FF - below)
        result = (power * LOG10_2_TAIL + ONE_OVER_LN10 * log(fraction)) + power * LOG10_2_HEAD
        return np.where(np.isfinite(x), result, x)


def pow(x: Doubles, y: Doubles) -> Doubles:
    """Of finite numbers, the base not zero."""
    with np.errstate(all="ignore"):
        base = np.abs(x)
        whole = y == np.rint(y)
        odd = whole & (np.abs(y) < 2.0**53) & (np.fmod(y, 2.0) != 0)
        huge = _high(np.abs(y)) > 0x41E00000  # then only bases next to one have a power between zero and infinity
        log_head, log_tail = (np.where(huge, a, b) for a, b in zip(_log2_near_one(base), _log2(base), strict=True))
        result = _exp2_product(y, log_head, log_tail)
        far = huge & ((_high(base) < 0x3FEFFFFF) | (_high(base) > 0x3FF00000))
        result = np.where(far, np.where((base > 1) == (y > 0), np.inf, 0.0), result)
        result = np.where((x < 0) & odd, -result, result)
        result = np.where((x < 0) & ~whole, np.nan, result)
        result = np.where((y == 0.5) & (x > 0), np.sqrt(base), result)
        for exponent, exact in ((1.0, x), (2.0, x * x), (-1.0, 1.0 / x)):
            result = np.where(y == exponent, exact, result)
        return result


def _log2(base: Doubles) -> tuple[Doubles, Doubles]:
    """The logarithm to base 2 as a head of 21 bits and the rest."""
    normal, exponent = _normalise(base, 53)
    fraction = _high(normal) & 0xFFFFF
    up = (fraction >= 0xBB67A).astype(np.int64)  # from the root of 3 on
    third = (fraction > 0x3988E) & (up == 0)  # from the root of 1.5 on, 1.5 is what it is compared with
    ax, by = _with_exponent(normal, 0x3FF - up), np.where(third, 1.5, 1.0)
    u, v = ax - by, 1.0 / (ax + by)
    ss = u * v
    s_head = _cut(ss)
    sum_head = (((_high(ax) >> 1) | 0x20000000) + 0x00080000 + (third.astype(np.int64) << 18) << 32).view(np.float64)
    sum_tail = ax - (sum_head - by)
    s_tail = v * ((u - s_head * sum_head) - s_head * sum_tail)
    square = ss * ss
    r = square * square * _polynomial(square, POW) + s_tail * (s_head + ss)
    square = s_head * s_head
    t_head = _cut(3.0 + square + r)
    t_tail = r - ((t_head - 3.0) - square)
    u, v = s_head * t_head, s_tail * t_head + t_tail * ss
    p_head = _cut(u + v)
    p_tail = v - (p_head - u)
    z_head = TWO_THIRDS_HEAD * p_head
    z_tail = TWO_THIRDS_TAIL * p_head + p_tail * TWO_THIRDS_LOG2_E + np.where(third, LOG2_1_5_TAIL, 0.0)
    offset, power = np.where(third, LOG2_1_5_HEAD, 0.0), (exponent + up).astype(np.float64)
    head = _cut(((z_head + z_tail) + offset) + power)
    return head, z_tail - (((head - power) - offset) - z_head)


def _log2_near_one(base: Doubles) -> tuple[Doubles, Doubles]:
    t = base - 1.0
    w = (t * t) * (0.5 - t * (0.3333333333333333333333 - t * 0.25))
    u, v = POW_INVERSE_HEAD * t, t * POW_INVERSE_TAIL - w * ONE_OVER_LN2
    head = _cut(u + v)
    return head, v - (head - u)


def _exp2_product(y: Doubles, log_head: Doubles, log_tail: Doubles) -> Doubles:
    """Two to the power of y times a logarithm."""
    y_head = _cut(y)
    tail, head = (y - y_head) * log_head + y * log_tail, y_head * log_head
    z = tail + head
    over = (z > 1024.0) | ((z == 1024.0) & (tail + OVERFLOW_TAIL > z - head))
    under = (z < -1075.0) | ((z == -1075.0) & (tail <= z - head))
    over_or_under = over | under
    turns = np.where(_high(np.abs(z)) > 0x3FE00000, np.copysign(np.floor(np.abs(z) + 0.5), z), 0.0)
    turns = np.where(over_or_under | np.isnan(z), 0.0, turns)
    head = head - turns
    t = _cut(tail + head)
    u, v = t * POW_LN2_HEAD, (tail - (t - head)) * LN2 + t * POW_LN2_TAIL
    z = u + v
    w = v - (z - u)
    square = z * z
    c = z - square * _polynomial(square, EXP)
    result = np.ldexp(1.0 - (((z * c) / (c - 2.0) - (w + z * w)) - z), turns.astype(np.int32))
    return np.where(over, np.inf, np.where(under, 0.0, result))


def _polynomial(x: Doubles, coefficients: tuple[float, ...]) -> Doubles:
    result = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        result = coefficient + x * result
    return result


def _high(x: Doubles) -> np.ndarray:
    """Sign, exponent and the first 20 bits of the fraction, as fdlibm compares them."""
    return x.view(np.int64) >> 32


def _cut(x: Doubles) -> Doubles:
    """The number with the last 32 bits of its fraction zero."""
    return (x.view(np.int64) & -(1 << 32)).view(np.float64)


def _normalise(x: Doubles, shift: int) -> tuple[Doubles, np.ndarray]:
    """The number, those too small for a full fraction times 2 to the shift, and its exponent."""
    small = x < 2.0**-1022
    normal = np.where(small, x * 2.0**shift, x)
    return normal, (_high(normal) >> 20) - 1023 - np.where(small, shift, 0)


def _with_exponent(x: Doubles, exponent: np.ndarray) -> Doubles:
    """The fraction of a number with another exponent, biased as it is stored."""
    return ((x.view(np.int64) & ((1 << 52) - 1)) | (exponent << 52)).view(np.float64)
