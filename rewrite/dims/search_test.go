package dims

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
)

// searchIn returns the search for rows of x, [rows, 2], and its constants.
func searchIn(t *testing.T, rows int, build func(b *onnxtest.Builder, x *onnx.Value)) *search {
	t.Helper()
	b := onnxtest.New(18)
	x := b.Input("x", onnx.Float, rows, 2)
	build(b, x)
	d := &Dim{Name: "n", Size: int64(rows), places: []place{{input: x, axis: 0}}}
	a, err := newAnalysis(b.Model, []*Dim{d}, Options{})
	if err == nil {
		err = a.resolve()
	}
	if err != nil {
		t.Fatal(err)
	}
	return a.search(0)
}

// TestRelations: how rows of outputs depend on rows of the inputs.
func TestRelations(t *testing.T) {
	zero := onnx.IntAttr("axis", 0)
	for name, c := range map[string]struct {
		rows  int
		build func(b *onnxtest.Builder, x *onnx.Value)
		want  string
	}{
		"each by itself": {4, func(b *onnxtest.Builder, x *onnx.Value) { b.Output(b.Op("Tanh", x)) },
			"axes [0], rows, causal, tail, depends"},
		"earlier ones": {4, func(b *onnxtest.Builder, x *onnx.Value) { b.Output(b.Op("CumSum", x, 0)) },
			"axes [0], causal, tail, depends"},
		"later ones": {4, func(b *onnxtest.Builder, x *onnx.Value) {
			b.Output(b.Op("CumSum", x, 0, onnx.IntAttr("reverse", 1)))
		}, "axes [0], tail, depends"},
		"their places": {4, func(b *onnxtest.Builder, x *onnx.Value) {
			b.Output(b.Op("CumSum", b.Op("Sin", b.Op("CumSum", b.Op("Sub", x, x), 0)), 0))
			b.Output(b.Op("Add", x, b.Op("CumSum", b.Op("Exp", b.Op("Sub", x, x)), 0)))
		}, "axes [0 0], causal, tail, depends"},
		"the first": {4, func(b *onnxtest.Builder, x *onnx.Value) { b.Output(b.Op("Gather", x, 0, zero)) },
			"axes [-1]"},
		"the second": {4, func(b *onnxtest.Builder, x *onnx.Value) { b.Output(b.Op("Gather", x, 1, zero)) },
			"axes [-1], depends"},
		"the last": {4, func(b *onnxtest.Builder, x *onnx.Value) { b.Output(b.Op("Gather", x, -1, zero)) },
			"axes [-1], tail, depends"},
		"one more": {4, func(b *onnxtest.Builder, x *onnx.Value) {
			b.Output(b.Op("Concat", b.Op("Gather", x, []int64{0}, zero), x, zero))
		}, "axes [0], causal, tail, depends"},
		"pairs": {4, func(b *onnxtest.Builder, x *onnx.Value) {
			b.Output(b.Op("MatMul", x, b.Op("Transpose", x)))
			b.Output(b.Op("Transpose", x))
		}, "axes [-2 1], tail, depends"},
		"a single row": {1, func(b *onnxtest.Builder, x *onnx.Value) { b.Output(b.Op("Tanh", x)) }, "axes [0], rows"},
		"nothing": {4, func(b *onnxtest.Builder, x *onnx.Value) { b.Output(b.Op("Mul", x, 0.0)) },
			"axes [0], rows, causal"},
	} {
		s := searchIn(t, c.rows, c.build)
		e, err := s.evidence(&reading{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := fmt.Sprint("axes ", e.axes)
		for i, holds := range []bool{e.rows, e.causal, e.tail, e.depends} {
			if holds {
				got += ", " + []string{"rows", "causal", "tail", "depends"}[i]
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if again, err := s.evidence(&reading{}); again != e || err != nil {
			t.Errorf("%s: tried again, %v", name, err)
		}
	}
}

// TestCandidates lists the meanings of constants behind a failed node, the likely and near ones first, and those of all
// constants of a model that already runs.
func TestCandidates(t *testing.T) {
	s := searchIn(t, 6, func(b *onnxtest.Builder, x *onnx.Value) {
		far := b.Op("Slice", x, []int64{0}, []int64{6}, []int64{0})
		b.Output(b.Op("Reshape", b.Op("Add", x, far), []int64{-1, 3, 4}))
	})
	text := func(set map[slot]rat) string {
		var parts []string
		for at, f := range set {
			parts = append(parts, fmt.Sprintf("%s.%d[%d]=%d/%d", at.node.OpType, at.input, at.part, f.num, f.den))
		}
		slices.Sort(parts)
		return strings.Join(parts, "+")
	}
	list := func(r *reading, failed outcome) (got []string) {
		for _, o := range s.candidates(r, failed) {
			got = append(got, text(o.set))
		}
		return got
	}
	n := s.model.Graph.Nodes[2]
	const first = "Slice.2[0]=1/1"
	all := []string{first, "Reshape.1[0]=1/1", "Reshape.1[1]=1/1", "Reshape.1[2]=1/1", "Reshape.1[0]=1/6",
		"Reshape.1[1]=1/2"}
	got := list(&reading{}, outcome{node: n})
	if last := got[len(got)-1]; got[0] != first || !slices.Contains(all[4:], last) ||
		!slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(all))) {
		t.Errorf("candidates %q, want %q", got, all)
	}
	end := slot{s.model.Graph.Nodes[0], 2, 0}
	taken := (&reading{}).with(0, 1, map[slot]rat{end: {1, 1}})
	if got := list(taken, outcome{node: n}); len(got) != 5 || slices.Contains(got, first) {
		t.Errorf("candidates beside a chosen one: %q", got)
	}
	// 6 rows at export, 18 in the trial: the shape [1, 3, 4] must have 3 times as many elements.
	s.size = 18
	demanded := list(taken, outcome{node: n, elements: 36})
	if !slices.Contains(demanded, "Reshape.1[2]=2/3") || len(demanded) != 6 {
		t.Errorf("candidates with 36 elements: %q", demanded)
	}
	if d := s.demanded(s.byInput[n][0], taken, outcome{elements: 48}); len(d) != 2 || text(d[0].set) !=
		"Reshape.1[0]=1/4" || text(d[1].set) != "Reshape.1[1]=3/4" {
		for _, o := range d {
			t.Errorf("48 elements demand %s", text(o.set))
		}
	}
	r, decisions, err := s.complete(&reading{})
	if err != nil || len(decisions) != 2 || text(decisions[0].taken.set) != first {
		t.Fatalf("%v, %d decisions", err, len(decisions))
	}
	if got := s.key(r); got == s.key(taken) || got != s.key(r.with(0, 1, nil)) {
		t.Errorf("the key of a reading is %s", got)
	}
	hopeless := searchIn(t, 4, func(b *onnxtest.Builder, x *onnx.Value) {
		b.Output(b.Op("Add", x, b.Floats([]int64{4, 1}, 1, 5, 2, 7)))
	})
	_, _, err = hopeless.complete(&reading{})
	left := hopeless.left
	if _, _, again := hopeless.complete(&reading{}); err == nil || again == nil || hopeless.left != left-1 {
		t.Errorf("%v, then %v after %d trials", err, again, left-hopeless.left)
	}
	if hopeless.stuck.node == nil || hopeless.stuck.node.OpType != "Add" {
		t.Errorf("stuck at %v", hopeless.stuck.node)
	}
	hopeless.left = 1
	if _, _, err := hopeless.complete(&reading{}); !errors.Is(err, errTrials) {
		t.Errorf("without trials: %v", err)
	}
}

// TestInferred: the model knows that the number of -1 follows, unlike other multiples. It is before these, even if it
// follows rows as well.
func TestInferred(t *testing.T) {
	s := searchIn(t, 3, func(b *onnxtest.Builder, x *onnx.Value) {
		all := b.Op("Concat", x, x, x, x, x, x, onnx.IntAttr("axis", 0))
		b.Output(b.Op("Reshape", all, []int64{6, -1}))
	})
	n := s.model.Graph.Nodes[1]
	at := slot{n, 1, 1}
	s.rows[at] = true
	if got := s.candidates(&reading{}, outcome{node: n}); got[0].set[at] != (rat{2, 1}) {
		t.Errorf("first %v", got[0].set)
	}
}

// TestHopeless: a search that gets no further ends soon, and names the constant that it would need.
func TestHopeless(t *testing.T) {
	s := searchIn(t, 4, func(b *onnxtest.Builder, x *onnx.Value) {
		for range 16 {
			x = b.Op("Tanh", b.Op("Reshape", b.Op("Reshape", x, []int64{2, 2, 2}), []int64{4, 2}))
		}
		b.Output(b.Op("Add", x, b.Floats([]int64{4, 2}, 3, 1, 4, 1, 5, 9, 2, 6)))
	})
	if err := s.learn(); err != nil {
		t.Fatal(err)
	}
	_, err := s.variants()
	if err == nil || !strings.Contains(err.Error(), "of [4 2], which is made for the size 4, and it is not known how") {
		t.Error(err)
	}
	if n := mostTrials - s.left; n > mostStuck+2*chainTrials {
		t.Errorf("%d trials", n)
	}
}

// TestMemo: nodes behind a change that a node does not notice are not evaluated again.
func TestMemo(t *testing.T) {
	s := searchIn(t, 3, func(b *onnxtest.Builder, x *onnx.Value) {
		same := b.Op("Equal", []int64{3, 5}, []int64{-1, -1})
		for range 20 {
			x = b.Op("Where", same, x, b.Op("Tanh", x))
		}
		b.Output(x)
	})
	trial := func(r *reading) int {
		before := s.steps
		if x := s.try(r, 9); x.err != nil {
			t.Fatal(x.err)
		}
		return s.steps - before
	}
	first := trial(&reading{})
	changed := (&reading{}).with(0, 1, map[slot]rat{{s.model.Graph.Nodes[0], 0, 0}: {1, 1}})
	if again := trial(changed); again > first/5 {
		t.Errorf("%d steps, and then %d", first, again)
	}
}

// TestToggles lists the numbers of a model that may come from its size although it runs.
func TestToggles(t *testing.T) {
	s := searchIn(t, 6, func(b *onnxtest.Builder, x *onnx.Value) {
		y := b.Op("Mul", b.Op("Div", x, 6.0), b.Op("Cast", []int64{6, 7}, onnx.IntAttr("to", 1)))
		b.Output(b.Op("Add", y, 0.5))
		b.Output(b.Op("ConstantOfShape", []int64{2, 12, 7}))
		b.Output(b.Op("Cast", []int64{6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22},
			onnx.IntAttr("to", 1)))
		b.Output(b.Op("Neg", b.Floats([]int64{2, 6}, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0)))
		b.Output(b.Op("Abs", b.Floats([]int64{6, 2}, make([]float32, 12)...)))
	})
	var got []string
	for _, v := range s.toggles(&variant{reading: &reading{}}) {
		var parts []string
		for at, f := range v.factors {
			parts = append(parts, fmt.Sprintf("[%d]*%d/%d", at.part, f[0].num, f[0].den))
		}
		for _, f := range v.numbers {
			parts = append(parts, fmt.Sprint("number ", f(10)))
		}
		slices.Sort(parts)
		got = append(got, v.toggled.node.OpType+" "+strings.Join(parts, " "))
	}
	slices.Sort(got)
	expect(t, "toggles", strings.Join(got, "; "), "Abs [-1]*1/1; Cast [-100]*1/1; Cast [-100]*1/1; Cast [-100]*1/1; "+
		"Cast [-100]*1/1; Cast [0]*1/1; Cast [0]*1/1; Cast [0]*1/1; Cast [1]*1/1; Cast [1]*1/1; "+
		"Cast [1]*1/1 [2]*1/1; ConstantOfShape [1]*2/1; ConstantOfShape [1]*2/1; ConstantOfShape [1]*2/1; "+
		"ConstantOfShape [1]*2/1; ConstantOfShape [2]*1/1; ConstantOfShape [2]*1/1; ConstantOfShape [2]*1/1; "+
		"Div number 10; Neg [-100]*1/1 [-2]*1/1; Neg [-1]*1/1 [-2]*1/1; Neg [-2]*1/1")
	one := []rat{{1, 1}}
	for _, c := range s.constants { // numbers that depend on the size already are left out
		taken := &reading{factors: map[slot][]rat{}}
		for i := range c.tensor.I {
			taken.factors[slot{c.node, c.input, i}] = one
		}
		taken.factors[slot{c.node, c.input, lengthOf(0)}], taken.factors[slot{c.node, c.input, lengthOf(1)}] = one, one
		for _, v := range s.toggles(&variant{reading: taken}) {
			if v.toggled == c && len(v.numbers) == 0 && c.family.linear < 0 && !c.family.step {
				t.Errorf("%s %v is toggled, although it depends on the size", c.node.OpType, c.tensor.Shape)
			}
		}
	}
	want := []float64{7, -7, 6, 8, 1. / 7, 1. / 6, math.Sqrt(7), 1 / math.Sqrt(7), math.Log(7), 49, 2. / 7, 2. / 6}
	for i, f := range functions {
		if got := f(7); math.Abs(got-want[i]) > 1e-12 {
			t.Errorf("function %d of 7 is %g, want %g", i, got, want[i])
		}
	}
}

// TestNear compares tensors up to a fraction of the largest magnitude.
func TestNear(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	type list = []float64
	for _, c := range []struct{ a, near, far list }{
		{list{100, 1}, list{100, 1.9}, list{100, 2.1}}, {list{1, -100}, list{1.9, -100}, list{1, 100}},
		{list{nan, inf}, list{nan, inf}, list{1, inf}}, {list{inf, 1}, list{inf, 1}, list{inf, 2}},
		{list{inf}, list{inf}, list{-inf}}, {list{0}, list{1e-8}, list{2e-8}}, {list{1}, list{1}, list{nan}},
		{list{1}, list{1}, list{1, 1}},
	} {
		if !near(floats(c.a...), floats(c.near...), 0.01) || near(floats(c.a...), floats(c.far...), 0.01) {
			t.Errorf("near to %v: not %v, but %v", c.a, c.near, c.far)
		}
	}
	one, two, none := []*reference.Tensor{table("1 2")}, []*reference.Tensor{table("1 3")}, []*reference.Tensor{}
	expect(t, "equal", []bool{equal(one, one, 0), equal(one, two, 9), equal(one, none, 9), equal(none, one, 9),
		near(one[0], floats(1, 2), 9), near(floats(1, 2), one[0], 9)}, []bool{true, false, false, false, false, false})
}

// TestSettled: which dimensions are lengths of caches, which tables masks, and which inputs contradict each other.
func TestSettled(t *testing.T) {
	b := onnxtest.New(18)
	x, image := b.Input("x", onnx.Float, 2, 4, 6), b.Input("image", onnx.Float, 2, 4, 6, 8)
	for _, c := range []struct {
		name  string
		place place
		want  bool
	}{{"past", place{input: image, axis: 2}, true}, {"past", place{input: image, axis: 3}, false},
		{"past", place{input: x, axis: 1}, true},
		{Sequence, place{input: x, axis: 1}, false}, {"past", place{input: x, axis: 0}, false}} {
		d := &Dim{Name: c.name, places: []place{{input: x, axis: 0}, c.place}}
		expect(t, fmt.Sprint(c.name, " at ", c.place, " is a cache"), d.isCache(b.Model), c.want)
	}
	a := &analysis{dims: []*Dim{{Name: "n", places: []place{{input: x, axis: 1}, {input: image, axis: 1}}},
		{Name: "k", places: []place{{input: image, axis: 3}}}}}
	of := func(shape ...int) *reference.Tensor { return reference.NewFloats(onnx.Float, shape, nil) }
	for _, c := range []struct {
		x, image *reference.Tensor
		want     []int64
	}{{of(1, 5, 1), of(2, 5, 3, 7), []int64{5, 7}}, {of(1, 5, 1), of(2, 4, 3, 7), nil}, {of(5), of(2, 5, 3, 7), nil},
		{nil, of(2, 5, 3, 7), nil}} {
		got := a.sizeOf(map[string]*reference.Tensor{"x": c.x, "image": c.image})
		expect(t, fmt.Sprint("sizes in ", c.x, c.image), got, c.want)
	}
	one := []rat{{0, 1}, {1, 1}}
	for _, c := range []struct {
		table string
		grows []int
		want  bool
	}{
		{"f0 1/0 0", []int{lengthOf(0)}, true}, {"f0 1/0 0", []int{diagonal}, true}, {"f0 1/0 0", nil, false},
		{"f1 1/1 1", []int{lengthOf(0)}, false}, {"f1 1/1 1", []int{lengthOf(1)}, true},
		{"f1 1/1 1", []int{lengthOf(0), lengthOf(1)}, true}, {"4 5 6", []int{lengthOf(0)}, false},
		{"4 5 6", []int{diagonal}, false},
	} {
		k := &constant{node: &onnx.Node{}, tensor: table(c.table), family: familyOf(table(c.table))}
		r := &choice{reading: &reading{factors: map[slot][]rat{}}}
		for _, part := range c.grows {
			r.factors[slot{k.node, 0, part}] = one
		}
		expect(t, fmt.Sprint(c.table, " along ", c.grows, " is a mask"),
			[]bool{r.isMask(nil, k, 1), r.isMask(nil, k, 0)}, []bool{c.want, false})
	}
	for _, c := range []struct {
		op              string
		input, inferred int
		numbers         string
		want            bool
	}{{"Reshape", 1, -1, "2 3", true}, {"Reshape", 1, 1, "2 3", false}, {"Reshape", 1, -1, "2 0", false},
		{"Reshape", 0, -1, "2 3", false}, {"Expand", 1, -1, "2 3", false}} {
		k := &constant{node: &onnx.Node{OpType: c.op}, input: c.input, inferred: c.inferred, tensor: table(c.numbers)}
		expect(t, fmt.Sprint(c, " divides"), divides(k), c.want)
	}
}

// TestAmbiguous names the first node whose constant distinguishes the remaining meanings.
func TestAmbiguous(t *testing.T) {
	a := &analysis{dims: []*Dim{{Name: "m", Size: 3}, {Name: "n", Size: 6}}}
	var at []slot
	for _, name := range []string{"b", "a", "c"} {
		at = append(at, slot{node: &onnx.Node{Name: name}})
	}
	of := func(f ...rat) *variant {
		r := &reading{factors: map[slot][]rat{}}
		for i, x := range f {
			r.factors[at[i]] = []rat{x}
		}
		return &variant{reading: r}
	}
	one, two := rat{1, 1}, rat{2, 1}
	toggled := of(one)
	toggled.toggled = &constant{node: at[2].node, value: &onnx.Value{Name: "k"}}
	const several = "several of its numbers may be the size 6, and the model does not show which"
	for _, c := range []struct {
		list         []*variant
		node, reason string
	}{
		{[]*variant{of(one), of(one, one)}, "a", several}, {[]*variant{of(one, two), of(one, one)}, "a", several},
		{[]*variant{of(two, one, one), of(one, one)}, "b", several},
		{[]*variant{of(one, one), of(one, one, one)}, "c", several},
		{[]*variant{of(), toggled}, "c", `its constant "k" may be a number of the model or come from the size 6, and ` +
			"the model does not show which"},
	} {
		for _, list := range [][]*variant{c.list, {c.list[1], c.list[0]}} {
			if list[1].toggled == nil && list[0].toggled != nil {
				continue
			}
			err := a.ambiguous(1, list)
			want := fmt.Sprintf("n cannot be freed at %s: %s; pass recorded outputs of another size", c.node, c.reason)
			if err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
	if got := (&Refusal{Dim: "n", Reason: "no"}).Error(); got != "n cannot be freed: no" {
		t.Error(got)
	}
}

// TestSteps: a search that ends because its trials take too long gives that reason and no other, however far it came.
// Dimensions that take too long together are searched one by one.
func TestSteps(t *testing.T) {
	most := mostSteps
	t.Cleanup(func() { mostSteps = most })
	b := onnxtest.New(17)
	turn := onnx.IntsAttr("perm", []int64{0, 2, 1, 3})
	x := b.Input("x", onnx.Float, 4, 6, 16)
	q := b.Op("Transpose", b.Op("Reshape", x, []int64{4, 6, 4, 4}), turn)
	s := b.Op("MatMul", q, b.Op("Transpose", q, onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
	y := b.Op("Transpose", b.Op("MatMul", b.Op("Softmax", s), q), turn)
	b.Output(b.Op("Reshape", y, []int64{4, 6, 16}))
	found := map[string]bool{}
	for mostSteps = 1; !found["true true"] && mostSteps < 1<<20; mostSteps += mostSteps/8 + 1 {
		r, err := Inspect(b.Model, Known(b.Model), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range r.Dims {
			if !d.Free && d.Reason != errSteps.Error() {
				t.Errorf("%s after %d steps: %s", d.Name, mostSteps, d.Reason)
			}
		}
		found[fmt.Sprint(r.Dims[0].Free, r.Dims[1].Free)] = true
	}
	expect(t, "free", found, map[string]bool{"false false": true, "true false": true, "true true": true})
}
