package prove_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

// runOf returns a run of an op's kernel on these inputs, nil if left out, with the definition's results.
func runOf(t *testing.T, name string, attributes []*onnx.Attribute, in ...*reference.Tensor) *prove.KernelRun {
	t.Helper()
	r := &prove.KernelRun{Op: fused.Lookup(name), Site: fused.Site{Attributes: attributes, Opset: 20}, In: in}
	for _, x := range in {
		typ, dims := onnx.Undefined, []int64(nil)
		if x != nil {
			typ, dims = x.DataType, x.Dims()
		}
		r.Site.Types, r.Site.Dims = append(r.Site.Types, typ), append(r.Site.Dims, dims)
	}
	if err := r.Op.Supports(r.Site); err != nil {
		t.Fatal(err)
	}
	f, err := r.Op.Function(r.Site)
	if err != nil {
		t.Fatal(err)
	}
	n := &onnx.Node{Domain: fused.Domain, OpType: name, Overload: f.Overload, Attributes: attributes,
		Outputs: make([]*onnx.Value, len(r.Op.Outputs))}
	if r.Want, err = reference.NewForOpset(20, []*onnx.Function{f}, reference.Options{}).Op(n, in); err != nil {
		t.Fatal(err)
	}
	return r
}

// judgeRun compares a first output with the definition's.
func judgeRun(r *prove.KernelRun, y []float64) (prove.KernelFigures, error) {
	got := slices.Clone(r.Want)
	got[0] = reference.NewFloats(got[0].DataType, got[0].Shape, y)
	return r.Compare(got)
}

func tensorOf(k prove.Kind, seed int, shape ...int64) *reference.Tensor {
	x, err := prove.MakeInput(k, seed, onnx.Float, shape)
	if err != nil {
		panic(err)
	}
	return x
}

// wideLinear returns a product with n rows of k quantized elements, and the same in float32, summed term by term.
func wideLinear(t *testing.T, tokens prove.Kind, n, k int64) (r *prove.KernelRun, rows []float32,
	y func(rows []float32) []float64) {
	matrix, rows := rewritetest.Quantized("w", n, k)
	in := []*reference.Tensor{tensorOf(tokens, 1, 3, k)}
	for _, x := range matrix.Tensors()[:2] {
		made, err := reference.FromONNX(x)
		if err != nil {
			t.Fatal(err)
		}
		in = append(in, made)
	}
	attrs := matrix.Linear("float").Attributes()
	return runOf(t, "Linear", attrs, in...), rows, func(rows []float32) []float64 {
		var y []float64
		for token := range 3 {
			for row := range n {
				sum := float32(0)
				for i := range k {
					sum += float32(in[0].F[int64(token)*k+i]) * rows[row*k+i]
				}
				y = append(y, float64(sum))
			}
		}
		return y
	}
}

// TestWideProducts accepts a correct kernel for rows as wide as in real models, and no wrong one.
func TestWideProducts(t *testing.T) {
	for _, k := range []int64{4096, 14336} {
		for _, tokens := range []prove.Kind{prove.Normal, prove.Small, prove.Large, prove.Repeated, prove.OneHot} {
			r, rows, y := wideLinear(t, tokens, 21, k)
			f, err := judgeRun(r, y(rows))
			if err != nil || !f.Tells || f.MaxRel > 1e-5 {
				t.Errorf("%d columns, %s inputs: %+v, %v", k, tokens.Name, f, err)
			}
			for fault, change := range map[string]func(){
				"one wrong element": func() { rows[20*k+2] += 0.25 },
				"one wrong scale": func() {
					for i := range int64(32) {
						rows[7*k+i] *= 1.25
					}
				},
				"a dropped block":      func() { clear(rows[3*k : 3*k+32]) },
				"a row off by a part":  func() { scale(rows[5*k:6*k], 1.001) },
				"all off by less":      func() { scale(rows, 1.0001) },
				"two rows exchanged":   func() { exchange(rows[:k], rows[k:2*k]) },
				"the last block twice": func() { copy(rows[k-64:k-32], rows[k-32:k]) },
			} {
				if tokens.Name == prove.OneHot.Name && strings.Contains(fault, "last") { // it reads three columns
					continue
				}
				kept := slices.Clone(rows)
				change()
				if f, err := judgeRun(r, y(rows)); err == nil {
					t.Errorf("%d columns, %s inputs, %s: taken with %+v", k, tokens.Name, fault, f)
				}
				copy(rows, kept)
			}
		}
	}
}

// TestVanishingProducts: each product below the smallest normal number may be off by half a step.
func TestVanishingProducts(t *testing.T) {
	r, _, _ := wideLinear(t, prove.Zeros, 2, 64)
	for steps, want := range map[float64]bool{prove.ULPs[onnx.Float] + 32: true, prove.ULPs[onnx.Float] + 33: false} {
		if _, err := judgeRun(r, []float64{0, 0, steps * 0x1p-149, 0, 0, 0}); (err == nil) != want {
			t.Errorf("%g steps: %v", steps, err)
		}
	}
}

func scale(v []float32, by float32) {
	for i := range v {
		v[i] *= by
	}
}

func exchange(a, b []float32) {
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
}

// TestEqualRoundings has sums of equal numbers, whose rounding errors have the same sign: attention to as many keys as
// images and sounds have, one after the other.
func TestEqualRoundings(t *testing.T) {
	const width = 16
	for _, keys := range []int64{128, 197, 257, 577, 1500} {
		q, k, v := tensorOf(prove.OneHot, 0, 1, 1, 3, width), tensorOf(prove.OneHot, 1, 1, 1, keys, width),
			tensorOf(prove.Repeated, 2, 1, 1, keys, width)
		r := runOf(t, fused.AttentionName, attentionAttributes(0.25), q, k, v)
		attend := func(weight func(key int) float32) []float64 {
			var y []float64
			for query := range 3 {
				var sum float32
				numbers := make([]float32, width)
				for key := range int(keys) {
					score := float32(0)
					for i := range width {
						score += float32(q.F[query*width+i]) * float32(k.F[key*width+i])
					}
					p := float32(math.Exp(float64(0.25*score))) * weight(key)
					sum += p
					for i := range numbers {
						numbers[i] += p * float32(v.F[key*width+i])
					}
				}
				for _, x := range numbers {
					y = append(y, float64(x/sum))
				}
			}
			return y
		}
		f, err := judgeRun(r, attend(func(int) float32 { return 1 }))
		if err != nil || !f.Tells {
			t.Errorf("%d keys: %+v, %v", keys, f, err)
		}
		y := attend(func(int) float32 { return 1 })
		for i := range y {
			y[i] *= 1.001
		}
		if f, err := judgeRun(r, y); err == nil {
			t.Errorf("%d keys, off by 0.001: taken with %+v", keys, f)
		}
	}
	// A missing key shows only if the values differ.
	const keys = 1500
	r := runOf(t, fused.AttentionName, attentionAttributes(0.25), tensorOf(prove.Normal, 0, 1, 1, 3, width),
		tensorOf(prove.Normal, 1, 1, 1, keys, width), tensorOf(prove.Normal, 2, 1, 1, keys, width))
	less := runOf(t, fused.AttentionName, attentionAttributes(0.25), r.In[0],
		reference.NewFloats(onnx.Float, []int{1, 1, keys - 1, width}, r.In[1].F[:(keys-1)*width]),
		reference.NewFloats(onnx.Float, []int{1, 1, keys - 1, width}, r.In[2].F[:(keys-1)*width]))
	if f, err := judgeRun(r, less.Want[0].F); err == nil {
		t.Errorf("a key less: taken with %+v", f)
	}
}

func attentionAttributes(scale float32) []*onnx.Attribute {
	return fused.Attention{Scale: scale, Empty: "zero", HeadOrder: "blocked", QLayout: "bnsh", KLayout: "bnsh",
		VLayout: "bnsh", YLayout: "bnsh"}.Attributes()
}

// TestCancelledResults has results in which larger numbers cancel, so that units in the last place mean nothing.
func TestCancelledResults(t *testing.T) {
	one := func(x float64) *reference.Tensor { return reference.NewFloats(onnx.Float, []int{}, []float64{x}) }
	gelu := rewritetest.GLUAttributes("gelu", 1, 0, 0)
	r := runOf(t, "GLU", gelu, one(-9), one(2))
	for y, want := range map[float64]bool{0: true, -2e-18: true, 1e-7: true, 1e-3: false, math.NaN(): false} {
		f, err := judgeRun(r, []float64{y})
		if (err == nil) != want || f.MaxRel > 1 && want {
			t.Errorf("%g in the place of %g: %+v, %v", y, r.Want[0].F[0], f, err)
		}
	}
	// If nothing cancels, a zero must be a zero.
	r = runOf(t, "GLU", gelu, one(0), one(2))
	if f, err := judgeRun(r, []float64{1e-30}); err == nil {
		t.Errorf("something for zeros: taken with %+v", f)
	}
}

// TestFewRoundings counts units in the last place if rounding errors do not accumulate.
func TestFewRoundings(t *testing.T) {
	x := make([]float64, 32)
	for i := range x {
		x[i] = float64(i%5) + 1
	}
	r := runOf(t, "GLU", rewritetest.GLUAttributes("silu", 1, 0, 0), reference.NewFloats(onnx.Float, []int{32}, x),
		reference.NewFloats(onnx.Float, []int{32}, x))
	greatest := slices.Max(r.Want[0].F)
	for units, want := range map[float64]bool{0: true, 16: true, 40: false, 1e4: false} {
		y := slices.Clone(r.Want[0].F)
		y[4] = greatest + units*prove.Spacing(onnx.Float, greatest)
		f, err := judgeRun(r, y)
		if (err == nil) != want || (f.MaxRel == 0) != (units == 0) || !f.Tells {
			t.Errorf("%g units: %+v, %v", units, f, err)
		}
	}
	y := slices.Clone(r.Want[0].F)
	y[7] = math.NaN()
	if _, err := judgeRun(r, y); err == nil {
		t.Error("a NaN was taken")
	}
}

// router returns the attributes of a router that chooses two experts.
func router(score string) []*onnx.Attribute {
	return fused.TopKRouter{TopK: 2, Score: score, Order: "score_first", Groups: 1, GroupTopK: 1, GroupScore: "max",
		Renormalize: true, Scale: 1}.Attributes()
}

// TestRouterRuns requires the same experts.
func TestRouterRuns(t *testing.T) {
	r := runOf(t, fused.TopKRouterName, router("softmax"), tensorOf(prove.Normal, 0, 3, 128))
	if f, err := r.Compare(r.Want); err != nil || f.MaxRel != 0 {
		t.Errorf("as it is: %+v, %v", f, err)
	}
	other := prove.Clone(r.Want[1])
	other.I[0], other.I[1] = other.I[1], other.I[0]
	if _, err := r.Compare([]*reference.Tensor{r.Want[0], other}); err == nil {
		t.Error("another order of the experts was taken")
	}
	heavier := prove.Clone(r.Want[0])
	heavier.F[3] *= 1.001
	if _, err := r.Compare([]*reference.Tensor{heavier, r.Want[1]}); err == nil {
		t.Error("other weights were taken")
	}
}

// TestSaturatedScores accepts either expert if their sigmoids are equal or one unit apart, and no other expert.
func TestSaturatedScores(t *testing.T) {
	run := func(logits ...float64) *prove.KernelRun {
		return runOf(t, fused.TopKRouterName, router("sigmoid"),
			reference.NewFloats(onnx.Float, []int{len(logits) / 4, 4}, logits))
	}
	r := run(1, 2, 4, 3, 16.4, 47, 2, 36, 5, 16.4, 47, 18)
	for _, c := range []struct {
		name  string
		ids   []int64
		right bool
	}{
		{"another of saturated scores", []int64{2, 3, 1, 3, 1, 2}, true},
		{"the definition's", r.Want[1].I, true},
		{"another order of scores apart", []int64{3, 2, 1, 3, 1, 2}, false},
		{"another expert", []int64{2, 1, 1, 3, 1, 2}, false},
	} {
		ids := prove.Clone(r.Want[1])
		ids.I = c.ids
		if f, err := r.Compare([]*reference.Tensor{r.Want[0], ids}); (err == nil) != c.right || !f.Tells {
			t.Errorf("%s: %v, %v", c.name, f.Tells, err)
		}
	}
	fewer := reference.NewInts(onnx.Int64, []int{1, 2}, []int64{2, 3})
	for _, got := range [][]*reference.Tensor{{r.Want[0], fewer}, {fewer, r.Want[1]}, {r.Want[1], r.Want[1]}} {
		if _, err := r.Compare(got); err == nil {
			t.Errorf("the results %v are taken", got)
		}
	}
	r = run(20, 30, 40, 50)
	if f, err := r.Compare(r.Want); err != nil || f.Tells {
		t.Errorf("a run of saturated scores alone tells of a kernel: %v, %v", f.Tells, err)
	}
}

// TestVagueRuns refuses a site if all of its runs prove nothing.
func TestVagueRuns(t *testing.T) {
	r := &prove.CheckReport{}
	r.KernelRan(prove.KernelFigures{MaxRel: 0.5})
	if r.KernelTold || *r.Kernel != 0.5 {
		t.Errorf("%+v", r)
	}
	r.KernelRan(prove.KernelFigures{Tells: true})
	if !r.KernelTold || *r.Kernel != 0.5 {
		t.Errorf("%+v", r)
	}
}

// TestOpenParts: numbers within the part of the greatest magnitude that an op leaves open are equal, others are not.
func TestOpenParts(t *testing.T) {
	open := 0.25
	op := &fused.Op{Differ: func(fused.Site) float64 { return open }}
	float := func(x ...float64) *reference.Tensor { return reference.NewFloats(onnx.Float, []int{len(x)}, x) }
	kernel := float(-6, 2, 3, math.NaN())
	got := []*reference.Tensor{kernel, nil, float(1), float(1, 2), float(7)}
	prove.SettleRounded(op, fused.Site{})([]*reference.Tensor{float(-8, 0, 0.9, 0), float(1), nil, float(1)}, got)
	if y := got[0].F; y[0] != -8 || y[1] != 0 || y[2] != 3 || !math.IsNaN(y[3]) || kernel.F[0] != -6 || got[1] != nil ||
		got[2].F[0] != 1 || got[3].F[1] != 2 || got[4].F[0] != 7 {
		t.Errorf("settled to %v, the kernel's are %v", got, kernel)
	}
	if open = 0; prove.SettleRounded(op, fused.Site{}) != nil {
		t.Error("an op that leaves nothing open is settled")
	}
}

// TestRunsOfKernels: the number of outputs, omitted ones, and the parts that a run settles.
func TestRunsOfKernels(t *testing.T) {
	x := tensorOf(prove.Normal, 0, 2, 4)
	run := func() *prove.KernelRun {
		return runOf(t, fused.TopKRouterName, router("softmax"), x)
	}
	r := run()
	if _, err := r.Compare(r.Want[:1]); err == nil || err.Error() != "1 outputs instead of 2" {
		t.Errorf("an output less: %v", err)
	}
	if rel, err := prove.CompareKernel(r.Op, r.Site, r.In, r.Want, r.Want); rel != 0 || err != nil {
		t.Errorf("the same: %g, %v", rel, err)
	}
	weights, ids := prove.Clone(r.Want[0]), prove.Clone(r.Want[1])
	weights.F[1] += 2
	if rel, err := prove.CompareKernel(r.Op, r.Site, r.In, r.Want, []*reference.Tensor{weights, ids}); err == nil ||
		rel < 1 || !strings.Contains(err.Error(), `output "weights" by 2`) {
		t.Errorf("another weight: %g, %v", rel, err)
	}
	for _, omitted := range []int{0, 1} {
		r, got := run(), []*reference.Tensor{weights, ids}
		got[1-omitted] = r.Want[1-omitted]
		r.Want[omitted] = nil
		r.Settle = func(want, got []*reference.Tensor) {
			if got[omitted] != nil || want[omitted] != nil || got[1-omitted] == nil {
				t.Errorf("output %d is omitted: %v is settled with %v", omitted, got, want)
			}
		}
		if _, err := r.Compare(got); err != nil || got[omitted] == nil {
			t.Errorf("without output %d: %v", omitted, err)
		}
	}
	r.Settle = func(want, got []*reference.Tensor) { got[0] = want[0] }
	if f, err := r.Compare([]*reference.Tensor{weights, ids}); err != nil || f.MaxRel != 0 {
		t.Errorf("a settled weight: %+v, %v", f, err)
	}
	other := reference.NewInts(onnx.Int64, []int{1}, []int64{1})
	for _, c := range []struct {
		want, got []*reference.Tensor
		same      bool
	}{{r.Want, []*reference.Tensor{weights, ids}, true}, {r.Want, []*reference.Tensor{weights, other}, false},
		{r.Want, []*reference.Tensor{nil, nil}, false}, {[]*reference.Tensor{x, nil}, r.Want, true}} {
		if got := prove.SameChoices(c.want, c.got); got != c.same {
			t.Errorf("%v and %v: the same choice is %v", c.want, c.got, got)
		}
	}
}
