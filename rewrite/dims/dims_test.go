package dims_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/dims"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/rewritetest"
)

const width = 16

// A graph builds a model for one size, like an exporter that bakes it in.
type graph func(b *onnxtest.Builder, x *onnx.Value, batch, sequence int)

func weights(b *onnxtest.Builder, n int64) *onnx.Value {
	r := rand.New(rand.NewPCG(uint64(n), 7))
	v := make([]float32, width*n)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return b.Floats([]int64{width, n}, v...)
}

func ints(v ...int) []int64 {
	list := make([]int64, len(v))
	for i, x := range v {
		list[i] = int64(x)
	}
	return list
}

// attention returns attention with four heads. seen is the mask for pairs of positions, or nil.
func attention(seen func(query, key int) bool) graph {
	return func(b *onnxtest.Builder, x *onnx.Value, batch, n int) {
		perm := onnx.IntsAttr("perm", []int64{0, 2, 1, 3})
		head := func(seed int64) *onnx.Value {
			w := weights(b, width)
			return b.Op("Transpose", b.Op("Reshape", b.Op("MatMul", x, w), ints(batch, n, 4, 4)), perm)
		}
		q, k, v := head(1), head(2), head(3)
		s := b.Op("MatMul", q, b.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
		if seen != nil {
			mask := make([]float32, n*n)
			for i := range n {
				for j := range n {
					if !seen(i, j) {
						mask[i*n+j] = -1e9
					}
				}
			}
			s = b.Op("Add", s, b.Floats(ints(n, n), mask...))
		}
		y := b.Op("MatMul", b.Op("Softmax", s), v)
		b.Output(b.Op("Reshape", b.Op("Transpose", y, perm), ints(batch, n, -1)))
	}
}

func causal(query, key int) bool { return key <= query }

func window(query, key int) bool { return key <= query && key > query-6 }

func (g graph) model(batch, sequence int) *onnx.Model {
	b := onnxtest.New(17)
	g(b, b.Input("x", onnx.Float, batch, sequence, width), batch, sequence)
	for _, v := range b.Graph.Outputs {
		v.SetType(onnx.Type{DataType: onnx.Float})
	}
	return b.Model
}

// names are the dimensions of all models here.
var names = []string{"batch", "sequence"}

func apply(m *onnx.Model, o dims.Options, names ...string) (*dims.Report, error) {
	return dims.Apply(&pass.Run{Editor: edit.Editor{Model: m}}, names, o)
}

func swap() *onnx.Attribute { return onnx.IntsAttr("perm", []int64{0, 2, 1}) }

func scores(b *onnxtest.Builder, x *onnx.Value) *onnx.Value {
	return b.Op("MatMul", x, b.Op("Transpose", x, swap()))
}

func run(t *testing.T, m *onnx.Model, x *reference.Tensor) *reference.Tensor {
	t.Helper()
	return rewritetest.Run(t, m, map[string]*reference.Tensor{"x": x})[m.Graph.Outputs[0].Name]
}

func random(batch, sequence int) *reference.Tensor {
	r := rand.New(rand.NewPCG(uint64(batch), uint64(sequence)))
	x := make([]float64, batch*sequence*width)
	for i := range x {
		x[i] = float64(float32(r.NormFloat64()))
	}
	return reference.NewFloats(onnx.Float, []int{batch, sequence, width}, x)
}

// recorded returns the result of a graph at a size.
func (g graph) recorded(t *testing.T, batch, sequence int) golden.Case {
	t.Helper()
	x := random(batch, sequence)
	m := g.model(batch, sequence)
	in, err := x.ToONNX("x")
	if err != nil {
		t.Fatal(err)
	}
	out, err := run(t, m, x).ToONNX(m.Graph.Outputs[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	return golden.Case{Inputs: []*onnx.Tensor{in}, Outputs: []*onnx.Tensor{out}}
}

var forms = map[string]struct {
	graph
	batch, sequence int
	longer          int    // a recorded length, or 0
	refused         string // part of the reason
}{
	"attention":            {attention(nil), 2, 10, 0, ""},
	"batch is heads":       {attention(nil), 4, 10, 0, ""},
	"one sequence":         {attention(nil), 1, 10, 0, ""},
	"folded mask":          {folded, 2, 7, 0, ""},
	"n heads":              {attention(nil), 2, 4, 0, "several of its numbers may be the size 4"},
	"n heads, recorded":    {attention(nil), 2, 4, 7, ""},
	"mask":                 {attention(causal), 2, 6, 0, "a window of at least as many positions"},
	"mask, recorded":       {attention(causal), 2, 6, 9, ""},
	"window":               {attention(window), 2, 6, 0, "a window of at least as many positions"},
	"window, recorded":     {attention(window), 2, 6, 9, ""},
	"two masks":            {masks, 2, 6, 0, "a window of at least as many positions"},
	"two masks, recorded":  {masks, 2, 6, 9, ""},
	"two masks, no window": {masks, 2, 6, 7, "shows no window"},
	"n channels, recorded": {attention(causal), 3, 16, 17, ""},
	"mean":                 {mean, 2, 10, 0, "may be a number of the model or"},
	"mean, recorded":       {mean, 2, 10, 12, "is not a size itself"},
	"batches mixed":        {mixed, 3, 5, 0, "may be a number of the model or"},
	"sequences mixed":      {mixed, 1, 5, 0, "differ from rows computed together"},
	"last position":        {last, 3, 6, 0, ""},
	"first positions":      {first, 3, 6, 0, ""},
	"loop":                 {loop, 2, 6, 0, ""},
	"token before":         {token, 2, 6, 0, ""},
	"learned places":       {places, 2, 6, 9, "is made for the size 6, and it is not known how"},
	"counted places":       {counted, 2, 6, 0, ""},
	"reversed":             {reversed, 2, 6, 0, ""},
	"reversed, recorded":   {reversed, 2, 6, 9, ""},
	"pairs":                {pairs, 2, 6, 0, "no output depends on the rows after 6"},
	"waves":                {wavy, 2, 10, 0, ""},
	"waves of no base":     {rough, 2, 10, 12, "is made for the size 10, and it is not known how"},
	"ones":                 {ones, 2, 6, 0, "a window of at least as many positions"},
	"ones, recorded":       {ones, 2, 6, 9, ""},
	"pool of all":          {pool, 2, 6, 0, "its attribute kernel_shape may come from the size 6"},
	"truth, recorded":      {truth, 2, 6, 9, ""},
	"counted from 10":      {later, 2, 6, 0, ""},
	"six, recorded":        {six, 2, 6, 9, ""},
	"six":                  {six, 2, 6, 0, "its attribute kernel_shape may come from the size 6"},
	"split":                {split, 2, 6, 0, "it has 6 outputs, as many as the size"},
	"split of channels":    {channels, 2, 3, 0, ""},
	"grid of indices":      {grid, 2, 6, 0, ""},
	"heads in layers":      {layers, 2, 8, 0, ""},
	"heads as rows":        {turned, 2, 4, 0, ""},
	"rows for experts":     {experts, 2, 4, 0, ""},
	"chunks":               {chunks, 2, 12, 0, "several of its numbers"},
	"buckets":              {biased(buckets), 2, 7, 0, "several constants must follow it together"},
	"buckets, recorded":    {biased(buckets), 2, 7, 10, ""},
	"buckets, causal":      {biased(earlier), 2, 7, 0, ""},
	"slopes":               {biased(slopes), 2, 7, 0, ""},
	"indices by distance":  {learned(99), 2, 7, 0, "may have a limit that is not reached at the size 7"},
	"indices by magnitude": {biased(magnitudes), 2, 7, 0, "may have a limit that is not reached at the size 7"},
	"indices, recorded":    {learned(99), 2, 7, 10, ""},
	"a limit, recorded":    {learned(8), 2, 7, 10, "no choice of constants reproduces"},
	"ones for Trilu":       {biased(triangle), 2, 6, 0, ""},
}

// TestApply frees batch and sequence of baked graphs, and compares them with graphs built for other sizes. If the file
// does not determine the result, Apply must refuse and leave the model unchanged.
func TestApply(t *testing.T) {
	for name, f := range forms {
		t.Run(name, func(t *testing.T) {
			m := f.model(f.batch, f.sequence)
			before := m.Graph.Text()
			var recorded []golden.Case
			if f.longer > 0 {
				recorded = append(recorded, f.recorded(t, 2, f.longer))
			}
			r, err := apply(m, dims.Options{Recorded: recorded}, names...)
			var refused *dims.Refusal
			if f.refused != "" {
				if !errors.As(err, &refused) || !strings.Contains(err.Error(), f.refused) {
					t.Fatalf("got %v and %v, expected a refusal: %s", r, err, f.refused)
				}
				if m.Graph.Text() != before {
					t.Fatal("the model changed")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if r.Check == nil || r.Check.Cases == 0 || len(r.Dims) != 2 {
				t.Errorf("report %+v", r)
			}
			for _, size := range [][2]int{{f.batch, f.sequence}, {1, 1}, {1, 5}, {5, 4}, {2, 13}, {3, 20}} {
				x := random(size[0], size[1])
				want, got := run(t, f.model(size[0], size[1]), x), run(t, m, x)
				same := slices.Equal(want.Shape, got.Shape)
				declared, _ := m.Graph.Outputs[0].Type()
				of := map[string]int{"batch": size[0], "sequence": size[1], "sequence + 1": size[1] + 1}
				for i, d := range declared.Dims {
					if n := max(int(d.Value), of[d.Param]); n != want.Shape[i] {
						t.Errorf("at %v: axis %d is %d, declared as %v", size, i, want.Shape[i], d)
					}
				}
				for i, w := range want.F { // sums of equal numbers may differ in the last place, depending on the op
					same = same && math.Abs(w-got.F[i]) <= 1e-6
				}
				if !same {
					t.Errorf("at %v: %v and %v", size, got, want)
				}
			}
		})
	}
}

// TestInspect reports the dimensions that can be freed and the others, and does not change the model.
func TestInspect(t *testing.T) {
	m := attention(causal)
	model := m.model(2, 6)
	before := model.Graph.Text()
	r, err := dims.Inspect(model, dims.Known(model), dims.Options{})
	if err != nil || len(r.Dims) != 2 || !r.Dims[0].Free || r.Dims[1].Free || r.Dims[1].Node == "" {
		t.Fatalf("%+v, %v", r, err)
	}
	if len(r.Constants) != 4 || r.Constants[0].Was != "[2, 6, 4, 4]" || r.Constants[0].Becomes != "[batch, 6, 4, 4]" {
		t.Errorf("constants %+v", r.Constants)
	}
	if of := r.Constants[0].Dims; !slices.Equal(of, []string{"batch"}) {
		t.Errorf("depends on %q", of)
	}
	if text := r.Text(); text != "batch, sequence follow the inputs: 4 constants are computed" {
		t.Error(text)
	}
	if model.Graph.Text() != before {
		t.Error("the model changed")
	}
}

// TestDeclaredShapes: inputs declare the names of freed dimensions, and the sizes at export between them are dropped.
func TestDeclaredShapes(t *testing.T) {
	m := attention(nil).model(2, 10)
	typeOf := func(v *onnx.Value) string {
		typ, _ := v.Type()
		return typ.String()
	}
	x, between := m.Graph.Inputs[0], m.Graph.Nodes[0].Outputs[0]
	between.SetType(onnxtest.Type(onnx.Float, 2, 10, width))
	const want = "float32[batch, sequence, 16]"
	if open, err := dims.Open(m, dims.Known(m)); err != nil || typeOf(open.Graph.Inputs[0]) != want ||
		typeOf(x) != "float32[2, 10, 16]" {
		t.Errorf("opened %v, %v, the model itself %s", open, err, typeOf(x))
	}
	_, err := apply(m, dims.Options{}, names...)
	if err != nil || typeOf(x) != want || typeOf(between) != "float32" {
		t.Errorf("%s, then %s, %v", typeOf(x), typeOf(between), err)
	}
}

// TestUnknownSizes: if the model declares names, the sizes at export come from the user or from a recorded case.
func TestUnknownSizes(t *testing.T) {
	open := graph(func(b *onnxtest.Builder, x *onnx.Value, _, _ int) { b.Output(b.Op("Tanh", x)) })
	for _, c := range []struct {
		graph
		recorded [2]int // batch and length
		names    []string
		want     string
	}{
		{attention(nil), [2]int{2, 7}, names, ""},
		{attention(nil), [2]int{}, []string{"batch=2", "sequence=7"}, ""},
		{attention(nil), [2]int{}, []string{"batch=2", "sequence"}, "its size at export is not known"},
		{attention(nil), [2]int{3, 7}, []string{"batch=2", "sequence"}, "its size at export is not known"},
		{attention(nil), [2]int{2, 7}, []string{"batch=3", "sequence"}, "it is 3 at export, but a recorded case"},
		{open, [2]int{}, names, "already runs at several sizes"},
	} {
		m := c.model(2, 7)
		x, _ := m.Graph.Inputs[0].Type()
		x.Dims[0], x.Dims[1] = onnx.Dim{Value: -1, Param: "batch"}, onnx.Dim{Value: -1, Param: "sequence"}
		m.Graph.Inputs[0].SetType(x)
		var o dims.Options
		if c.recorded[0] > 0 {
			o.Recorded = append(o.Recorded, c.graph.recorded(t, c.recorded[0], c.recorded[1]))
		}
		r, err := apply(m, o, c.names...)
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) ||
			c.want == "" && (err != nil || r.Dims[0].Size != 2 || r.Dims[1].Size != 7) {
			t.Errorf("%v with %v recorded: %+v, %v", c.names, c.recorded, r, err)
		}
	}
}

// TestCache refuses the length of a cache without recorded outputs: its positions may be baked in anywhere.
func TestCache(t *testing.T) {
	b := onnxtest.New(17)
	x, past := b.Input("x", onnx.Float, 2, 4, 1, width), b.Input("past", onnx.Float, 2, 4, 5, width)
	b.Output(b.Op("Concat", past, b.Op("Mul", x, 0.7), onnx.IntAttr("axis", 2)))
	s := b.Op("MatMul", x, b.Op("Transpose", b.Graph.Outputs[0], onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
	b.Output(b.Op("MatMul", b.Op("Softmax", s), b.Graph.Outputs[0]))
	_, err := apply(b.Model, dims.Options{}, "past=past.2")
	if err == nil || !strings.Contains(err.Error(), "the length of a cache") {
		t.Errorf("got %v", err)
	}
}

// decoder is causal attention over a cache and new tokens, with a window, a bias by distance, and rotated by the
// positions. Its mask, distances and angles were computed at the old size.
func decoder(batch, past, n int) *onnx.Model {
	b := onnxtest.New(17)
	count := func(from, n int, dims ...int64) *onnx.Value {
		list := make([]int64, n)
		for i := range list {
			list[i] = int64(from + i)
		}
		t := onnx.NewInt64s("count", list)
		t.Dims = dims
		return b.Constant(t)
	}
	x := b.Op("Gather", weights(b, width), b.Input("input_ids", onnx.Int64, batch, n))
	mask := b.Op("Unsqueeze", b.Input("attention_mask", onnx.Int64, batch, past+n), []int64{1})
	angles, sines, near := make([]float32, 0, n*width), make([]float32, 0, n*width), make([]byte, n*(past+n))
	far := make([]int64, n*(past+n))
	for i := range n {
		for k := range width {
			angles = append(angles, float32(past+i)*float32(math.Pow(10, -float64(k)/width)))
			rate := float32(math.Pow(10000, -float64(k%8)/8))
			sines = append(sines, float32(math.Sin(float64(float32(past+i)*rate))))
		}
		for k := range past + n {
			if far[i*(past+n)+k] = int64(k - i - past); past+i-k < 7 {
				near[i*(past+n)+k] = 1
			}
		}
	}
	x = b.Op("Mul", x, b.Op("Cos", b.Floats(ints(n, width), angles...)))
	x = b.Op("Add", x, b.Floats(ints(n, width), sines...))
	keys := b.Op("Concat", b.Input("past", onnx.Float, batch, 1, past, width),
		b.Op("Reshape", x, ints(batch, 1, n, width)), onnx.IntAttr("axis", 2))
	seen := b.Op("LessOrEqual", count(0, past+n, 1, int64(past+n)), count(past, n, int64(n), 1))
	window, _ := onnx.NewTensor("near", onnx.Bool, ints(n, past+n), near)
	seen = b.Op("And", b.Constant(window), seen)
	mask = b.Op("Cast", mask, onnx.IntAttr("to", int64(onnx.Bool)))
	seen = b.Op("And", b.Op("Expand", seen, ints(batch, n, past+n)), mask)
	k := b.Op("Squeeze", keys, []int64{1})
	distances := onnx.NewInt64s("distances", far)
	distances.Dims = ints(n, past+n)
	bias := b.Op("Sqrt", b.Op("Cast", b.Op("Neg", b.Constant(distances)), onnx.IntAttr("to", int64(onnx.Float))))
	scores := b.Op("Add", bias, b.Op("MatMul", x, b.Op("Transpose", k, swap())))
	scores = b.Op("Where", seen, b.Op("Mul", scores, 0.1), -1e9)
	b.Output(b.Op("MatMul", b.Op("Softmax", scores), k))
	b.Output(keys)
	return b.Model
}

// TestDecoder frees the new tokens of a decoder with a cache, whose mask has more positions, and with recorded outputs
// also the length of the cache: the mask's diagonal and the first angle follow it.
func TestDecoder(t *testing.T) {
	inputs := func(m *onnx.Model, seed uint64) (in map[string]*reference.Tensor, list []*onnx.Tensor) {
		list, err := golden.RandomInputs(m, seed, nil)
		in = map[string]*reference.Tensor{}
		for _, x := range list {
			if err == nil {
				in[x.Name], err = reference.FromONNX(x)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		return in, list
	}
	for past, sizes := range map[string][][3]int{
		"":     {{2, 5, 3}, {1, 5, 1}, {3, 5, 6}, {5, 5, 2}},
		"past": {{2, 5, 3}, {1, 0, 9}, {3, 8, 6}, {5, 17, 1}},
	} {
		m, o, names := decoder(2, 5, 3), dims.Options{ExtendMasks: past == ""}, names
		if past != "" {
			longer := decoder(3, 9, 4)
			in, list := inputs(longer, 5)
			c := golden.Case{Inputs: list}
			for i, y := range rewritetest.Run(t, longer, in) {
				x, err := y.ToONNX(i)
				if err != nil {
					t.Fatal(err)
				}
				c.Outputs = append(c.Outputs, x)
			}
			o.Recorded, names = []golden.Case{c}, append(names, past)
		}
		if _, err := apply(m, o, names...); err != nil {
			t.Fatal(err)
		}
		for _, size := range sizes {
			want := decoder(size[0], size[1], size[2])
			in, _ := inputs(want, 3)
			a, b := rewritetest.Run(t, want, in), rewritetest.Run(t, m, in)
			for i, v := range want.Graph.Outputs {
				x, y := a[v.Name], b[m.Graph.Outputs[i].Name]
				if !slices.Equal(x.Shape, y.Shape) {
					t.Fatalf("%v: %v, want %v", size, y.Shape, x.Shape)
				}
				for k := range x.F {
					if !(math.Abs(x.F[k]-y.F[k]) <= 1e-5) {
						t.Fatalf("%v: output %d differs at %d: %g, want %g", size, i, k, y.F[k], x.F[k])
					}
				}
			}
		}
	}
}

// opAttention is the standard's op, which hides the keys after the end of a mask that is too short.
func opAttention(b *onnxtest.Builder, x *onnx.Value, batch, n int) {
	mask := make([]byte, n*n)
	for i := range mask {
		if i%n <= i/n {
			mask[i] = 1
		}
	}
	seen, _ := onnx.NewTensor("seen", onnx.Bool, ints(1, 1, n, n), mask)
	every, _ := onnx.NewTensor("every", onnx.Bool, ints(1, 1, 1, n), slices.Repeat([]byte{1}, n))
	q := b.Op("Reshape", x, ints(batch, 1, n, width))
	valid := b.Op("And", b.Constant(seen), b.Constant(every))
	b.Output(b.Op("Squeeze", b.Op("Attention", q, q, q, valid), []int64{1}))
}

// TestExtendMasks accepts the user's word for a mask, and reports it.
func TestExtendMasks(t *testing.T) {
	for name, c := range map[string]struct {
		graph
		opset int64
	}{"nodes": {attention(causal), 17}, "op": {opAttention, 24}} {
		m := c.model(2, 6)
		m.ImportOpset("", c.opset)
		r, err := apply(m, dims.Options{ExtendMasks: true}, names...)
		if err != nil || !strings.Contains(r.Dims[1].Reason, "assumed to continue") {
			t.Fatalf("%s: %+v, %v", name, r, err)
		}
		x, longer := random(1, 9), c.model(1, 9)
		longer.ImportOpset("", c.opset)
		if want, got := run(t, longer, x), run(t, m, x); !slices.Equal(want.F, got.F) {
			t.Errorf("%s: another result", name)
		}
	}
}
