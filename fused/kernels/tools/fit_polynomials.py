"""Fits the polynomials of cpu/simd/math.h (exp and erf) and prints their float32 coefficients.

Each fit is a weighted least squares on Chebyshev points, reweighted a few times towards the
largest error (Lawson), which ends close to the minimax polynomial. Needs numpy and mpmath.
"""
import mpmath as mp
import numpy as np


def lawson(target, weight, lo, hi, degree, rounds=60, points=1500):
    """Coefficients c (lowest first) of the polynomial with the least max |weight*(c(x)-target(x))|."""
    k = np.arange(points)
    x = (lo + hi) / 2 + (hi - lo) / 2 * np.cos((2 * k + 1) * np.pi / (2 * points))
    y = np.array([float(target(mp.mpf(v))) for v in x])
    w = np.array([float(weight(mp.mpf(v))) for v in x])
    powers = np.vander(x, degree + 1, increasing=True)
    lam = np.ones(points) / points
    for _ in range(rounds):
        s = np.sqrt(lam) * w
        c = np.linalg.lstsq(powers * s[:, None], y * s, rcond=None)[0]
        err = np.abs(w * (powers @ c - y))
        lam = lam * (err + 1e-30)
        lam /= lam.sum()
    return c, err.max()


def show(name, c, err):
    """Prints one polynomial, highest coefficient first, as C float literals."""
    print(f"// {name}: largest weighted error {err:.2e}")
    for i in reversed(range(len(c))):
        print(f"  x^{i}: {float(np.float32(c[i])).hex()}f  ({np.float32(c[i])!r})")


def main():
    """Prints all fits."""
    mp.mp.dps = 40
    h = float(mp.log(2) / 2) * 1.001
    # exp(r) = 1 + r + r^2 q(r), relative error.
    q = lambda r: (mp.e**r - 1 - r) / r**2 if abs(r) > 1e-9 else mp.mpf(0.5)
    c, e = lawson(q, lambda r: r**2 / mp.e**r, -h, h, 4)
    show("exp: q on [-ln2/2, ln2/2]", c, e)
    # erf(x) = x + x p(x^2) for |x| < 1, relative error.
    f = lambda s: mp.erf(mp.sqrt(s)) / mp.sqrt(s) - 1 if s > 1e-12 else 2 / mp.sqrt(mp.pi) - 1
    c, e = lawson(f, lambda s: 1 / (f(s) + 1), 0, 1.0, 6)
    show("erf: p on [0, 1]", c, e)
    # erf(x) = 1 - exp(x t(x)) for 1 <= x <= 4, absolute error of erf.
    g = lambda x: mp.log(mp.erfc(x)) / x
    c, e = lawson(g, lambda x: x * mp.erfc(x), 0.95, 4.0, 6)
    show("erf: t on [0.95, 4]", c, e)


if __name__ == "__main__":
    main()
