"""Fits the polynomials of cpu/simd/math.h and prints their float32 coefficients.

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
    # Chebyshev polynomials of x scaled to [-1, 1] keep the least squares well conditioned.
    powers = np.polynomial.chebyshev.chebvander((2 * x - lo - hi) / (hi - lo), degree)
    lam = np.ones(points) / points
    for _ in range(rounds):
        s = np.sqrt(lam) * w
        c = np.linalg.lstsq(powers * s[:, None], y * s, rcond=None)[0]
        err = np.abs(w * (powers @ c - y))
        lam = lam * (err + 1e-30)
        lam /= lam.sum()
    fit = np.polynomial.Chebyshev(c, domain=[lo, hi])
    return fit.convert(kind=np.polynomial.Polynomial).coef, err.max()


def show(name, c, err):
    """Prints one polynomial, highest coefficient first, as C float literals."""
    print(f"// {name}: largest weighted error {err:.2e}")
    for i in reversed(range(len(c))):
        print(f"  x^{i}: {float(np.float32(c[i])).hex()}f  ({np.float32(c[i])!r})")


def main():
    """Prints all fits."""
    mp.mp.dps = 40
    # 2^f = 1 + f q(f), relative error.
    q = lambda f: (mp.mpf(2)**f - 1) / f if abs(f) > 1e-9 else mp.log(2)
    c, e = lawson(q, lambda f: f / mp.mpf(2)**f, -0.5001, 0.5001, 4)
    show("2^f: q on [-1/2, 1/2]", c, e)
    # Phi(-x) = erfc(x / sqrt 2) / 2 = 2^(x t(x) - x^2 log2(e)/2 - 1) for 0 <= x <= 5. The error of the
    # exponent is the relative error of Phi, which may grow as Phi falls.
    t = lambda x: (mp.log(mp.erfc(x / mp.sqrt(2)), 2)) / x + x / mp.log(4) if x > 1e-9 \
        else -mp.sqrt(2 / mp.pi) / mp.log(2)
    c, e = lawson(t, lambda x: x * max(mp.erfc(x / mp.sqrt(2)), mp.mpf("1e-3")), 0, 5, 8)
    show("t of the normal tail on [0, 5]", c, e)
    # tanh(x) = x + x z q(z), z = x^2, for 0 <= x <= 5/8, relative error.
    q = lambda z: (mp.tanh(mp.sqrt(z)) / mp.sqrt(z) - 1) / z if z > 1e-9 else -mp.mpf(1) / 3
    c, e = lawson(q, lambda z: z * mp.sqrt(z) / mp.tanh(mp.sqrt(z)) if z > 1e-9 else z, 0, 0.4, 4)
    show("tanh: q on [0, 5/8]", c, e)


if __name__ == "__main__":
    main()
