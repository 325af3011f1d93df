package dims

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
)

func expect[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func whole(shape []int, v ...int64) *reference.Tensor {
	return &reference.Tensor{DataType: onnx.Int64, Shape: shape, I: v}
}

func floats(v ...float64) *reference.Tensor {
	return &reference.Tensor{DataType: onnx.Float, Shape: []int{len(v)}, F: v}
}

// TestMeaningsOfNumbers: in which ways a number may come from a size.
func TestMeaningsOfNumbers(t *testing.T) {
	one, two, half := rat{1, 1}, rat{2, 1}, rat{1, 2}
	for _, c := range []struct {
		number, size int64
		factors      map[rat]int
		coincident   []rat
	}{
		{6, 6, map[rat]int{one: 0}, []rat{one}},
		{0, 6, map[rat]int{}, nil},
		{12, 6, map[rat]int{two: 1, one: 2}, []rat{two}},
		{4, 6, map[rat]int{one: 2}, nil},
		{3, 6, map[rat]int{one: 2, half: 3}, []rat{half}},
		{2, 6, map[rat]int{one: 2, {1, 3}: 3}, nil},
		{11, 6, map[rat]int{one: 2, two: 2}, nil},
		{13, 6, map[rat]int{one: 2, two: 2}, nil},
		{5, 6, map[rat]int{one: 2}, []rat{one}},
		{7, 6, map[rat]int{one: 2}, []rat{one}},
		{-6, 6, map[rat]int{{-1, 1}: 1, one: 2}, []rat{{-1, 1}}},
		{3, 1, map[rat]int{{3, 1}: 1, one: 2}, nil},
		{1, 2, map[rat]int{one: 2, half: 3}, nil},
		{2, 3, map[rat]int{one: 2}, []rat{one}},
		{4, 2, map[rat]int{two: 1, one: 2}, nil},
	} {
		expect(t, "factors", factors(c.number, c.size), c.factors)
		expect(t, "coincident", coincident(c.number, c.size), c.coincident)
	}
	expect(t, "ratio", []rat{ratio(6, 4), ratio(6, -4), ratio(0, 5), ratio(-4, 2)},
		[]rat{{3, 2}, {-3, 2}, {0, 1}, {-2, 1}})
	expect(t, "sizes to try", [][]int64{tests(6), tests(2), tests(1)},
		[][]int64{{7, 8, 12, 18, 5, 4, 3, 1}, {3, 4, 6, 1}, {2, 3}})
	expect(t, "whole", []int{option{set: map[slot]rat{{}: two}}.whole(), option{set: map[slot]rat{{}: half}}.whole()},
		[]int{1, 0})
}

// TestNumbersOfDimensions: a number at other sizes of batch 2, past 5 and length 6, and as a formula.
func TestNumbersOfDimensions(t *testing.T) {
	a := &analysis{dims: []*Dim{{Name: "b", Size: 2}, {Name: "p", Size: 5}, {Name: "n", Size: 6}}}
	zero, one := rat{0, 1}, rat{1, 1}
	for _, c := range []struct {
		number  int64
		factors []rat
		product bool
		want    int64 // at 3, 7, 9
		text    string
	}{
		{6, []rat{zero, zero, one}, false, 9, "n"},
		{7, []rat{zero, zero, one}, false, 10, "n + 1"},
		{5, []rat{zero, zero, one}, false, 8, "n - 1"},
		{-6, []rat{zero, zero, {-1, 1}}, false, -9, "-1*n"},
		{8, []rat{one, zero, one}, false, 12, "b + n"},
		{12, []rat{{6, 1}, zero, {2, 1}}, true, 27, "b*n"},
		{-12, []rat{{-6, 1}, zero, {-2, 1}}, true, -27, "-1*b*n"},
		{48, []rat{{24, 1}, zero, {8, 1}}, true, 108, "4*b*n"},
		{22, []rat{{11, 1}, {2, 1}, {2, 1}}, true, 48, "b*p + b*n"},
		{1, []rat{{1, 2}, zero, zero}, false, -1, "b/2"},
		{2, []rat{zero, {1, 2}, zero}, false, 3, "(p - 1)/2"},
		{1, []rat{zero, {-1, 1}, zero}, false, -1, "-1*p + 6"},
	} {
		k := &constant{node: &onnx.Node{}, tensor: whole([]int{1}, c.number)}
		s := slot{node: k.node}
		r := &reading{map[slot][]rat{s: c.factors}, map[slot]bool{s: c.product}, false}
		got, err := a.number(r, k, s, []int64{3, 7, 9})
		if c.want < 0 && c.number >= 0 {
			if !errors.Is(err, errFraction) {
				t.Errorf("%d of %v: %d, %v", c.number, c.factors, got, err)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%d of %v: %d, %v, want %d", c.number, c.factors, got, err, c.want)
		}
		expect(t, "formula", a.text(a.sum(r, k, s)), c.text)
	}
	expect(t, "names", a.names(), "b and p and n")
	expect(t, "sizes", a.sizesText(a.sizes(1, 4)), "b 2, p 4, n 6")
	expect(t, "least", a.least(), 2)
	expect(t, "joint sizes", a.jointSizes(), [][]int64{{3, 7, 9}, {1, 3, 3}, {4, 15, 24}, {9, 17, 19}})
}

// table reads integers, or floats after an f: rows have slashes between them, and a slash ends a single one.
func table(text string) *reference.Tensor {
	numbers, float := strings.CutPrefix(text, "f")
	rows := strings.Split(strings.TrimSuffix(numbers, "/"), "/")
	r := &reference.Tensor{DataType: onnx.Int64}
	for _, n := range strings.Fields(strings.ReplaceAll(numbers, "/", " ")) {
		x, _ := strconv.ParseInt(n, 10, 64)
		if r.I = append(r.I, x); float {
			r.DataType, r.F = onnx.Float, append(r.F, float64(x))
		}
	}
	if r.Shape = []int{len(rows), len(r.I) / len(rows)}; !strings.Contains(text, "/") {
		r.Shape = r.Shape[1:]
	}
	if float {
		r.I = nil
	}
	return r
}

// TestFamilies: how tables continue.
func TestFamilies(t *testing.T) {
	for _, c := range []struct {
		table string
		kind  string // of the family, with its axis or diagonal
		shape []int  // of the table extended with a diagonal or start of 1
		want  string // empty if it cannot be extended
	}{
		{"4 6 8", "count 4 by 2 along 0", []int{4}, "1 3 5 7"},
		{"5 4 3/5 4 3", "count 5 by -1 along 1", []int{1, 4}, "1 0 -1 -2/"},
		{"4 6 9", "", []int{4}, ""},
		{"4 6", "", []int{3}, ""},
		{"f7 7/7 7", "", []int{1, 3}, "f7 7 7/"},
		{"f3 7/3 7", "", []int{3, 2}, "f3 7/3 7/3 7"},
		{"f3 7/3 7", "", []int{2, 3}, ""},
		{"f0 1 1/0 0 1/0 0 0", "step 0", []int{2, 4}, "f0 0 1 1/0 0 0 1"},
		{"f0 0 0 1/0 0 0 0", "step 2", []int{1, 3}, "f0 0 1/"},
		{"f0 0 1 1/", "step 1", []int{2, 3}, "f0 0 1/0 0 0"},
		{"f1/1/0/0", "step -2", []int{1, 1}, "f0/"},
		{"f0 1 1/0 0 1/1 0 0", "step 0 window 2", []int{3, 4}, "f0 0 1 1/1 0 0 1/1 1 0 0"},
		{"f0 1 1/0 0 1/2 0 0", "", []int{3, 4}, ""},
		{"f-2 -1 0/-4 -2 0/-16 -8 0", "angles -2", []int{3, 4}, "f1 2 3 4/2 4 6 8/8 16 24 32"},
		{"f-2 -1 0/-4 -2 0/-6 -3 1", "", []int{3, 4}, ""},
		{"f0 1 1/0 1 1/0 0 0", "", []int{4, 3}, ""}, // no diagonal
		{"f0 1 1/0 2 1/0 0 0", "", []int{4, 3}, ""},
		{"-5 -4 -3/-6 -5 -4/-7 -6 -5", "plane -5 1 false", []int{2, 4}, "1 2 3 4/0 1 2 3"},
		{"6 3 0/9 6 3/12 9 6", "plane -2 -3 false", []int{3, 2}, "-3 -6/0 -3/3 0"},
		{"f0 -2 -4/-2 0 -2/-4 -2 0", "plane 0 -2 true", []int{2, 4}, "f-2 -4 -6 -8/0 -2 -4 -6"},
		{"f0 3 6/3 0 3/6 3 0", "", []int{3, 4}, ""}, // 3 is not a power of 2
		{"f0 2 3/2 0 2/3 2 0", "", []int{3, 4}, ""},
		{"4 6 8", "count 4 by 2 along 0", []int{maxTable + 1}, ""},
		{"4 6 8", "count 4 by 2 along 0", []int{-1}, ""},
	} {
		x := table(c.table)
		f := familyOf(x)
		k := &constant{tensor: x, family: f}
		kind := ""
		if start := k.original(slot{part: diagonal}); f.linear >= 0 {
			kind = fmt.Sprintf("count %d by %d along %d", start, f.by, f.linear)
		} else if f.step {
			if kind = fmt.Sprintf("step %d", start); f.window > 0 {
				kind += fmt.Sprintf(" window %d", f.window)
			}
		} else if f.waves != nil {
			kind = fmt.Sprintf("angles %d", start)
		} else if p := f.plane; p != nil {
			kind = fmt.Sprint("plane ", start, p.rates[0], p.magnitude)
		}
		expect(t, c.table, kind, c.kind)
		expect(t, c.table, k.original(slot{part: lengthOf(0)}), int64(x.Shape[0]))
		got, err := f.extended(x, c.shape, 1)
		if c.want == "" && err == nil || c.want != "" && !reflect.DeepEqual(got, table(c.want)) {
			t.Errorf("%s extended to %d: %v, %v, want %s", c.table, c.shape, got, err, c.want)
		}
	}
}

// TestBasesOfWaves finds the rates of every base, with the channels in halves, in pairs and all different.
func TestBasesOfWaves(t *testing.T) {
	const n = 8
	for _, base := range []float64{1e2, 1e3, 1e4, 2e4, 5e4, 1e5, 1.5e5, 1.6e5, 2e5, 2.5e5, 3e5, 5e5, 6e5, 8e5,
		1e6, 1e8} {
		for form, which := range []func(k int) float64{func(k int) float64 { return float64(k%4) / 4 },
			func(k int) float64 { return float64(k/2) / 4 }, func(k int) float64 { return float64(k) / 8 }} {
			w := &waves{cosine: make([]bool, n), rates: make([]float64, n)}
			for k := range n {
				w.cosine[k] = form == 0 && k >= n/2 || form == 1 && k%2 == 1
				w.rates[k] = float64(float32(math.Pow(base, -which(k))))
			}
			x := floats(make([]float64, 3*n)...)
			x.Shape = []int{3, n}
			for i := range x.F {
				x.F[i] = w.value(i/n, i%n, w.rates)
			}
			if got := findWaves(x, 0, 1); got == nil || !sameRates(got.rates, w.rates) {
				t.Errorf("base %g, form %d: %+v", base, form, got)
			}
			for cosine := range 2 { // later positions
				y := floats(make([]float64, 3*n)...)
				y.Shape, w.first = x.Shape, 5
				w.cosine = slices.Repeat([]bool{cosine == 1}, n)
				for i := range y.F {
					y.F[i] = w.value(i/n, i%n, w.rates)
				}
				if got := findWaves(y, 0, 1); got == nil || got.first != 5 || !sameRates(got.rates, w.rates) ||
					!slices.Equal(got.cosine, w.cosine) {
					t.Errorf("base %g, form %d from position 5: %+v", base, form, got)
				}
			}
			if x.F[n+1] += 1e-5; findWaves(x, 0, 1) != nil {
				t.Errorf("base %g, form %d: found in spite of another element", base, form)
			}
		}
	}
}

// TestSizesAmongConstants: which inputs of which ops may hold sizes.
func TestSizesAmongConstants(t *testing.T) {
	for ops, want := range map[string][]int{"Slice": {1, 2}, "Pad": {1, 2, 4}, "Reshape": {1, 2, 3, 4},
		"Unsqueeze Squeeze CumSum ReduceSum": {2, 3, 4}} {
		for op := range strings.FieldsSeq(ops) {
			b := onnxtest.New(17)
			b.Op(op, b.Input("x", onnx.Float, 2), []int64{1}, []int64{2}, []int64{3}, []int64{4})
			list, err := constants(b.Model)
			var got []int
			for _, c := range list {
				got = append(got, c.input)
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: inputs %d may be sizes, want %d (%v)", op, got, want, err)
			}
		}
	}
	sixteen := "4 6 9 0 0 0 0 0 0 0 0 0 0 0 0 0"
	for _, c := range []struct {
		op    string
		input int
		table string
		want  bool
	}{
		{"Reshape", 1, sixteen, true}, {"Reshape", 1, sixteen + " 0", false}, {"Gather", 1, "0 1 2", false},
		{"Gather", 0, "0 1 2", true}, {"Expand", 1, "0 1 2", true}, {"Add", 1, "f2", false}, {"Add", 1, "2/", true},
		{"Add", 1, "1 5/2 2", false},
	} {
		x := table(c.table)
		k := &constant{node: &onnx.Node{OpType: c.op}, input: c.input, tensor: x, family: familyOf(x)}
		expect(t, c.op, k.hasSizes(), c.want)
	}
}

// TestRows: rows of inputs replaced, rotated and cut, and rows of outputs compared.
func TestRows(t *testing.T) {
	x := whole([]int{2, 3, 2}, 1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16)
	y := whole([]int{2, 3, 2}, 21, 22, 23, 24, 25, 26, 31, 32, 33, 34, 35, 36)
	in := map[string]*reference.Tensor{"x": x, "other": x}
	of := map[string]*reference.Tensor{"x": y, "other": y}
	d := &Dim{Size: 3, places: []place{{input: &onnx.Value{Name: "x"}, axis: 1}}}
	e := &evidence{search: &search{analysis: &analysis{dims: []*Dim{d}}}, axes: []int{1}}
	expect(t, "mixed", e.mixed(in, of, 1)["x"].I, []int64{1, 2, 23, 24, 25, 26, 11, 12, 33, 34, 35, 36})
	expect(t, "mixed at 0", e.mixed(in, of, 0), map[string]*reference.Tensor{"x": y, "other": x})
	expect(t, "rotated", e.rotated(in)["x"].I, []int64{3, 4, 5, 6, 1, 2, 13, 14, 15, 16, 11, 12})
	cut := e.window(in, 1, 3)
	expect(t, "window", cut["x"], whole([]int{2, 2, 2}, 3, 4, 5, 6, 13, 14, 15, 16))
	expect(t, "others", []*reference.Tensor{cut["other"], e.rotated(in)["other"]}, []*reference.Tensor{x, x})
	long, short := []*reference.Tensor{x}, []*reference.Tensor{cut["x"]}
	expect(t, "rows agree", []bool{e.agreeRows(short, long, 0, 1, 2), e.agreeRows(short, long, 1, 2, 1),
		e.agreeRows(short, long, 0, 0, 2), e.agreeRows(short, long, 1, 2, 2), e.agreeRows(long, short, 1, 0, 2),
		e.agreeRows(long, nil, 0, 0, 1)}, []bool{true, true, false, false, true, false})
}

// TestHoles: a mask of equal numbers gets zeros behind the first of each row, and nothing else does.
func TestHoles(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	x := whole([]int{3, 8}, slices.Repeat([]int64{7}, 24)...)
	y := holes(r, x)
	zeros := 0
	for i, n := range y.I {
		if n == 0 {
			zeros++
		}
		if n != 0 && n != 7 || i%8 == 0 && n == 0 || x.I[i] != 7 {
			t.Errorf("element %d is %d", i, n)
		}
	}
	if zeros < 3 || zeros > 12 || !slices.Equal(y.Shape, x.Shape) || y.DataType != x.DataType {
		t.Errorf("%d zeros in %v", zeros, y)
	}
	for _, x := range []*reference.Tensor{whole([]int{4}, 1, 1, 1, 1), whole([]int{2, 2}, 1, 1, 1, 2),
		whole([]int{1, 1}, 1), whole([]int{2, 3}, 0, 0, 0, 0, 0, 0), table("f1 1/1 1")} {
		if holes(r, x) != x {
			t.Errorf("holes in %v", x)
		}
	}
}

// TestVariants: a variant that runs at more sizes replaces one that computes the same, and related ones exclude others.
func TestVariants(t *testing.T) {
	x, y := []*reference.Tensor{floats(1)}, []*reference.Tensor{floats(2)}
	few, more, other, fraction := outputs{7: x}, outputs{7: x, 8: x}, outputs{7: y}, outputs{7: x, 8: nil}
	for _, c := range []struct {
		a, b               outputs
		same, runs, better bool
	}{
		{more, more, true, true, false}, {more, few, false, true, true}, {few, more, false, false, false},
		{few, other, false, true, false}, {fraction, more, true, false, false}, {more, fraction, true, true, false},
		{fraction, few, false, true, false}, {few, fraction, false, true, false},
		{few, outputs{8: x}, false, false, false},
	} {
		expect(t, "compared", []bool{sameOutputs(c.a, c.b), runsWith(c.a, c.b), better(c.a, c.b)},
			[]bool{c.same, c.runs, c.better})
	}
	var l list
	for _, o := range []outputs{few, more, more, few, {7: y, 8: y}} {
		l.add(&variant{outputs: o})
	}
	if len(l.kept) != 2 || len(l.kept[0].outputs) != 2 {
		t.Errorf("%d variants", len(l.kept))
	}
	free := &variant{evidence: &evidence{}}
	causal, rows := &variant{evidence: &evidence{causal: true}}, &variant{rows: true, evidence: &evidence{}}
	for _, c := range [][2][]*variant{{{free, causal}, {causal}}, {{causal, rows, free}, {rows}}, {{free}, {free}}} {
		l := list{kept: slices.Clone(c[0])}
		l.keepRelated()
		expect(t, "related", l.kept, c[1])
	}
	many, seen := []*variant{{}, {}, {}, {}, {}}, map[[3]*variant]bool{}
	for size := 2; size < 6; size++ {
		clear(seen)
		for c := range combinations([][]*variant{many[:size], many[1:size], many[:2]}) {
			seen[[3]*variant(c)] = true
		}
		expect(t, "combinations", len(seen), 2*size*(size-1))
	}
}
