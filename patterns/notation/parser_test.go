package notation

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mojo-patch/mojo-patch/internal/cputime"
	"github.com/mojo-patch/mojo-patch/patterns/builtin"
)

// newTestScope returns a scope with some built-in views and functions.
func newTestScope() *Scope {
	return NewScope(map[string]int{"Mean": 1, "Row": 1, "Rotation": 3},
		map[string]int{"rank": 1, "dim": 2, "broadcasts": 2, "type": 1})
}

func TestParseErrors(t *testing.T) {
	const head = "pattern P(x) -> y {\n"
	tests := []struct{ name, src, want string }{
		{"no pattern", "rule P", `f.pat:1:1: expected "view", "pattern" or "function", found "rule"`},
		{"unknown character", "pattern P(x) -> y {\n  y = Mul(x, ~)\n}", `f.pat:2:14: unexpected character '~'`},
		{"string without end", head + ` y = Gelu<approximate="tanh>(x)` + "\n}", "f.pat:2:23: unterminated string"},
		{"undefined result", "pattern P(x) -> z {\n y = Neg(x)\n} => mojo.A(x)",
			"f.pat:1:1: no statement defines the result z of pattern P"},
		{"undefined argument", head + " y = Neg(x)\n} => mojo.A(q)", "argument q of the target is not defined"},
		{"undefined condition", head + " y = Neg(x)\n where rank(q) == 1\n} => mojo.A(x)",
			"f.pat:3:13: q is not defined"},
		{"unknown function", head + " y = Neg(x)\n where size(x) == 1\n} => mojo.A(x)",
			"unknown function size; the functions are broadcasts, "},
		{"arity of function", head + " y = Neg(x)\n where dim(x) == 1\n} => mojo.A(x)",
			"dim takes 2 arguments, found 1"},
		{"recursion", head + " y = Neg(z)\n z = Neg(y)\n} => mojo.A(x)", "is defined by itself"},
		{"twice", head + " y = Neg(x)\n y = Abs(x)\n} => mojo.A(x)", "y is defined twice"},
		{"parameter defined", head + " x = Neg(x)\n} => mojo.A(x)", "x is a parameter"},
		{"view arity", "view V(a, b) = Mul(a, b)\n" + head + " y = V(x)\n} => mojo.A(x)",
			"view V takes 2 arguments, found 1"},
		{"tag in a view", "view V(x) = Neg(x) as a | Abs(x)\n" + head + " y = V(x)\n} => mojo.A(x)",
			`a view cannot use "as"`},
		{"no target", head + " y = Neg(x)\n}", `expected "=>", found end of file`},
		{"fraction in a list", head + " y = Reshape(x, [1, 2.5])\n} => mojo.A(x)",
			"f.pat:2:21: expected an integer, found 2.5"},
		{"results of a function", "function my.F(x) -> a, b {\n a = Neg(x)\n b = Abs(x)\n}\n" + head +
			" y = Neg(x)\n} => my.F(x)", "function my.F has 2 results, pattern P has 1"},
		{"target operand", head + " y = Neg(x)\n} => mojo.A(x, Relu(\"x\"))",
			"expected a name, a number, a list of integers or a call, found \"x\""},
		{"optional without argument", head + " y = Cast?()\n} => mojo.A(x)", "an optional node needs an argument"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := newTestScope().Parse("f.pat", tt.src)
			var e *Error
			if !errors.As(err, &e) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestParseExpandsViews(t *testing.T) {
	list, err := newTestScope().Parse("f.pat", `
		view Square(x) = Pow(x, 2) | Mul(x, x)   # two spellings
		pattern P(x) -> y {
		  y = Neg(Square(Cast?(x)))
		} => mojo.A(x)`)
	if err != nil {
		t.Fatal(err)
	}
	got := list[0].stmts["y"].Expr.String()
	if want := "Neg((Pow(Cast?(x), 2) | Mul(Cast?(x), Cast?(x))))"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestParseCapturesInViews binds the captures of a view in the pattern that uses it.
func TestParseCapturesInViews(t *testing.T) {
	list, err := newTestScope().Parse("f.pat", `
		view Root(x) = Sqrt(Add(x, $epsilon))
		pattern P(x) -> y {
		  y = Mul(Root(x), Root(Neg(x)))
		} => mojo.A(x; epsilon=$epsilon)`)
	if err != nil {
		t.Fatal(err)
	}
	p := list[0]
	if want := "Mul(Sqrt(Add(x, $epsilon)), Sqrt(Add(Neg(x), $epsilon)))"; p.stmts["y"].Expr.String() != want {
		t.Errorf("got %s, want %s", p.stmts["y"].Expr, want)
	}
	for _, root := range p.stmts["y"].Expr.(*Call).Args {
		c := root.(*Call).Args[0].(*Call).Args[1].(*Capture)
		if slot, ok := p.Slots["epsilon"]; !ok || c.Slot != slot {
			t.Errorf("%s is in slot %d, of %v", c, c.Slot, p.Slots)
		}
	}
}

// TestLimits reads short texts that mean very much. Each is refused at once.
func TestLimits(t *testing.T) {
	repeat := func(n int, f func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(f(i))
		}
		return b.String()
	}
	same := func(s string) func(int) string { return func(int) string { return s } }
	pattern := func(body string) string { return "pattern P(x) -> y {\n" + body + "\n} => mojo.A(x)" }
	for name, c := range map[string]struct{ text, want string }{
		"parentheses": {pattern("y = " + strings.Repeat("(", 300_000)), "nested more than 200 deep"},
		"calls":       {pattern("y = " + strings.Repeat("Neg(", 200_000)), "nested more than 200 deep"},
		"conditions":  {pattern("y = Neg(x) where " + strings.Repeat("(", 500_000)), "nested more than 200 deep"},
		"negations":   {pattern("y = Neg(x) where " + strings.Repeat("!", 500_000)), "nested more than 200 deep"},
		"operators":   {pattern("y = Neg(x) where 1" + strings.Repeat("||1", 200_000)), "more than 1000 operators"},
		"target":      {"pattern P(x) -> y {\ny = Neg(x)\n} => " + strings.Repeat("Neg(", 200_000), "200 deep"},
		"views": {repeat(40, func(i int) string {
			return fmt.Sprintf("view V%d(x) = Add(V%d(x), V%d(x))\n", i+1, i, i)
		}), "makes more than 262144 expressions"},
		"views of one": {"view V0(x) = Add(x, x)\n" + repeat(60, func(i int) string {
			return fmt.Sprintf("view V%d(x) = V%d(V%d(x))\n", i+1, i, i)
		}), "makes more than 262144 expressions"},
		"a view in itself": {"view V(x) = Add(x, x)\n" + pattern("y = "+strings.Repeat("V(", 60)+"x"+
			strings.Repeat(")", 60)), "has more than 262144 nodes here"},
		"names": {pattern("y = n0\n" + repeat(60, func(i int) string {
			return fmt.Sprintf("n%d = Add(n%d, n%d)\n", i, i+1, i+1)
		}) + "n60 = Neg(x)"), "has more than 262144 nodes here"},
		"alternatives": {pattern("y = n0\n" + repeat(60, func(i int) string {
			return fmt.Sprintf("n%d = n%d | n%d\n", i, i+1, i+1)
		}) + "n60 = Neg(x)"), "has more than 262144 nodes here"},
		"statements": {pattern(repeat(5000, func(i int) string { return fmt.Sprintf("n%d = Neg(x)\n", i) })),
			"more than 4096 statements"},
		"parameters": {"pattern P(" + repeat(2000, func(i int) string { return fmt.Sprintf("n%d,", i) }),
			"more than 1000 names in a list"},
		"a sum": {pattern("y = Add(" + repeat(40, same("x, ")) + "x)"), "Add has 41 arguments; at most 12 can"},
	} {
		start := cputime.Used()
		_, err := newTestScope().Parse("f.pat", c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.200v, want %q", name, err, c.want)
		}
		if took := cputime.Used() - start; took > 10*time.Second {
			t.Errorf("%s: it took %v", name, took)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range builtin.Blocks {
		f.Add(builtin.Text(name))
	}
	f.Add("function my.F(x) -> y, z <k> {\n y, z = Split(Mul(x, k); axis=-1)\n}\npattern P(x) -> y, z {\n y = " +
		"Neg(x)\n z = Abs(x)\n} => my.F(Relu(x); k=$k)")
	f.Add("pattern P(x) -> y {\n y = Neg(x)\n} => Reshape(mojo.F(_, x, -2.5; to=type(x)), [0, -1]; allowzero=[1, 2])")
	f.Fuzz(func(t *testing.T, src string) {
		if _, err := newTestScope().Parse("f.pat", src); err != nil {
			var e *Error
			if !errors.As(err, &e) || e.Pos.Line < 1 || e.Pos.Col < 1 {
				t.Errorf("error without a place: %v", err)
			}
		}
	})
}
