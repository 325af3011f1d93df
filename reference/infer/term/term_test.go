package term_test

import (
	"math/rand/v2"
	"testing"

	"github.com/mojo-patch/mojo-patch/reference/infer/term"
)

func TestPolynomials(t *testing.T) {
	e := term.NewTable()
	s, u := e.Size(), e.Size()
	want := func(name string, got, want term.Number) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, not %s", name, e.Text(got), e.Text(want))
		}
	}
	want("s + u - u", e.Sub(e.Add(s, u), u), s)
	want("(s + u)^2", e.Mul(e.Add(s, u), e.Add(u, s)),
		e.Add(e.Mul(s, s), e.Add(e.Mul(u, u), e.Mul(2, e.Mul(u, s)))))
	want("s - s", e.Sub(s, s), 0)
	want("64 * s / s", must(e.Exact(e.Mul(64, s), s)), 64)
	want("(s*u + s) / (u + 1)", must(e.Exact(e.Add(e.Mul(s, u), s), e.Add(u, 1))), s)
	if n, ok := e.Exact(e.Add(s, 1), 2); ok { // true only for odd sizes
		t.Errorf("(s + 1) / 2 is %s", e.Text(n))
	}
	want("(s - 16)/16 + 1", e.Add(e.Floor(e.Sub(s, 16), 16), 1), e.Floor(s, 16))
	want("(4*s + 3) / 4", e.Floor(e.Add(e.Mul(4, s), 3), 4), s)
	want("min(s, s + u)", e.Least(s, e.Add(u, s)), s)
	want("max(s, s + u)", e.Greatest(s, e.Add(u, s)), e.Add(s, u))
	want("to the end", e.Least(s, 1<<62), s)
	want("8 * (s/8) without a remainder", e.Mul(8, e.Quotient(s, 8)), s)
	padding := e.Mod(e.Sub(8, e.Mod(s, 8)), 8)
	want("s, padded to a multiple of 8", e.Mul(8, e.Floor(e.Add(s, padding), 8)), e.Add(s, padding))
	if n := e.Least(s, 2048); !e.Open(n) || n == s {
		t.Errorf("min(s, 2048) is %s", e.Text(n))
	} else if again := e.Least(2048, s); again != n {
		t.Error("min(s, 2048) is not min(2048, s)")
	}
	if !e.Loose(e.Floor(s, 2)) || e.Loose(e.Mul(s, u)) || e.Loose(7) || !e.Follows(s) || e.Follows(e.Real(0.5)) {
		t.Error("what is loose")
	}
	if x, ok := e.Value(e.Real(0.5)); !ok || x != 0.5 {
		t.Error("0.5 is lost")
	}
	for _, n := range []term.Number{e.Sub(s, 1), e.Sub(s, u), e.Real(-0.5), -1} {
		if e.Natural(n) {
			t.Errorf("%s is taken for no less than 0", e.Text(n))
		}
	}
}

func must(n term.Number, ok bool) term.Number {
	if !ok {
		return -1
	}
	return n
}

// TestAgainstNumbers computes random expressions with plain numbers for the sizes: equal Numbers must have equal
// numbers for all sizes, and reported signs must hold.
func TestAgainstNumbers(t *testing.T) {
	type value struct {
		n   term.Number
		are [4]int64 // for the sizes of each trial
	}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		e := term.NewTable()
		list := []value{{e.Size(), [4]int64{1, 2, 7, 4096}}, {e.Size(), [4]int64{3, 1, 8, 5}},
			{4, [4]int64{4, 4, 4, 4}}, {3, [4]int64{3, 3, 3, 3}}, {1, [4]int64{1, 1, 1, 1}}}
		for range 25 {
			a, b := list[r.IntN(len(list))], list[r.IntN(len(list))]
			v, op := value{}, r.IntN(7)
			natural := func(x value) bool { return e.Natural(x.n) }
			switch op {
			case 0:
				v.n = e.Add(a.n, b.n)
			case 1:
				v.n = e.Sub(a.n, b.n)
			case 2:
				v.n = e.Mul(a.n, b.n)
			case 3:
				v.n = e.Least(a.n, b.n)
			case 4:
				v.n = e.Greatest(a.n, b.n)
			case 5, 6:
				if !natural(a) || !natural(b) || b.are[0] == 0 || b.are[1] == 0 || b.are[2] == 0 || b.are[3] == 0 {
					continue
				}
				if v.n = e.Floor(a.n, b.n); op == 6 {
					v.n = e.Mod(a.n, b.n)
				}
			}
			small := true
			for i := range v.are {
				x, y := a.are[i], b.are[i]
				v.are[i] = [...]int64{x + y, x - y, x * y, min(x, y), max(x, y), x / max(y, 1), x % max(y, 1)}[op]
				small = small && max(v.are[i], -v.are[i]) < 1<<30
			}
			if !small {
				continue
			}
			for i := range v.are {
				if natural(v) && v.are[i] < 0 {
					t.Fatalf("seed %d: %s is %d", seed, e.Text(v.n), v.are[i])
				}
			}
			for _, w := range list {
				if w.n == v.n && w.are != v.are {
					t.Fatalf("seed %d: %s is both %d and %d", seed, e.Text(v.n), v.are, w.are)
				}
			}
			list = append(list, v)
		}
	}
}
