package dims_test

// The graphs of the tests. Each computes its output from x, [batch, n, width].

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// folded selects positions by indices that were folded into tables of the old size, and expands the result to it. No
// node fails before the result meets x, and no single constant mends that. Angles of rotations are folded, too.
func folded(b *onnxtest.Builder, x *onnx.Value, batch, n int) {
	c := b.Op("Gather", x, 0, onnx.IntAttr("axis", 2))
	count := func(n int, dims ...int64) *onnx.Value {
		list := make([]int64, n)
		for i := range list {
			list[i] = int64(i)
		}
		t := onnx.NewInt64s("count", list)
		t.Dims = dims
		return b.Constant(t)
	}
	angles := make([]float32, n*width)
	for i := range n {
		for k := range width {
			angles[i*width+k] = float32(i) * float32(math.Pow(7777, -float64(k)/width))
		}
	}
	length := b.Op("Gather", b.Op("Shape", c), []int64{1})
	at := b.Op("Add", b.Op("Mul", count(batch, int64(batch), 1), length), count(n, 1, int64(n)))
	seen := b.Op("Expand", b.Op("Gather", b.Op("Reshape", c, []int64{-1}), at), ints(batch, n))
	y := b.Op("Mul", x, b.Op("Unsqueeze", seen, []int64{2}))
	b.Output(b.Op("Mul", y, b.Op("Cos", b.Floats(ints(n, width), angles...))))
}

// masks attends twice, with the same positions: to all positions before, and to a window of 7. The shape of the scores
// has two of its sizes.
func masks(b *onnxtest.Builder, x *onnx.Value, batch, n int) {
	places, near := make([]int64, n), make([]byte, n*n)
	for i := range n {
		places[i] = int64(i)
		for k := range n {
			if i-k < 7 {
				near[i*n+k] = 1
			}
		}
	}
	queries, keys := onnx.NewInt64s("queries", places), onnx.NewInt64s("keys", places)
	queries.Dims, keys.Dims = ints(n, 1), ints(1, n)
	table, _ := onnx.NewTensor("near", onnx.Bool, ints(n, n), near)
	before := b.Op("LessOrEqual", b.Constant(keys), b.Constant(queries))
	every := b.Op("Expand", before, ints(1, batch, n, n))
	window := b.Op("Expand", b.Op("And", b.Constant(table), before), ints(1, batch, n, n))
	s := scores(b, x)
	s = b.Op("Reshape", b.Op("Mul", s, 0.1), ints(1, batch, n, n))
	y := b.Op("MatMul", b.Op("Softmax", b.Op("Where", every, s, -1e9)), x)
	z := b.Op("MatMul", b.Op("Softmax", b.Op("Where", window, s, -1e9)), x)
	b.Output(b.Op("Squeeze", b.Op("Sub", y, b.Op("Mul", z, 0.7)), []int64{0}))
}

func mean(b *onnxtest.Builder, x *onnx.Value, _, n int) {
	sum := b.Op("ReduceSum", x, []int64{1}, onnx.IntAttr("keepdims", 0))
	b.Output(b.Op("Div", sum, float64(n)))
}

func mixed(b *onnxtest.Builder, x *onnx.Value, batch, _ int) {
	sum := b.Op("ReduceSum", x, []int64{0}, onnx.IntAttr("keepdims", 1))
	b.Output(b.Op("Add", x, b.Op("Mul", sum, float64(batch))))
}

func last(b *onnxtest.Builder, x *onnx.Value, _, n int) {
	b.Output(b.Op("Gather", b.Op("CumSum", x, 1), n-1, onnx.IntAttr("axis", 1)))
}

func first(b *onnxtest.Builder, x *onnx.Value, _, n int) {
	b.Output(b.Op("Slice", b.Op("CumSum", x, 1), []int64{0}, ints(n), []int64{1}))
}

// token prepends a vector to each sequence.
func token(b *onnxtest.Builder, x *onnx.Value, batch, n int) {
	t := b.Op("Expand", b.Floats([]int64{1, 1, 1}, 0.5), ints(batch, 1, width))
	y := b.Op("Concat", t, x, onnx.IntAttr("axis", 1))
	y = b.Op("Reshape", b.Op("MatMul", b.Op("Reshape", y, ints(batch*(n+1), width)), weights(b, width)),
		ints(batch, n+1, width))
	b.Output(b.Op("Tanh", y))
}

// places adds rows of a table that was cut to the length.
func places(b *onnxtest.Builder, x *onnx.Value, _, n int) {
	r := rand.New(rand.NewPCG(1, 1))
	v := make([]float32, n*width)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	b.Output(b.Op("Add", x, b.Floats(ints(n, width), v...)))
}

// counted adds rows of a table of 64 by position.
func counted(b *onnxtest.Builder, x *onnx.Value, _, n int) {
	at := make([]int64, n)
	v := make([]float32, 64*width)
	for i := range at {
		at[i] = int64(i)
	}
	for i := range v {
		v[i] = float32(i%97) / 97
	}
	b.Output(b.Op("Add", x, b.Op("Gather", b.Floats([]int64{64, width}, v...), at)))
}

// later adds rows of the table starting at row 10.
func later(b *onnxtest.Builder, x *onnx.Value, batch, n int) {
	counted(b, x, batch, n)
	at := b.Graph.Outputs[0].Producer.Input(1).Producer.Inputs
	rows := make([]int64, n)
	for i := range rows {
		rows[i] = int64(i + 10)
	}
	at[1].Const = onnx.NewInt64s(at[1].Name, rows)
}

// truth masks scores of later positions by a table of truth values.
func truth(b *onnxtest.Builder, x *onnx.Value, _, n int) {
	s := scores(b, x)
	later := make([]byte, n*n)
	for i := range later {
		if i%n > i/n {
			later[i] = 1
		}
	}
	mask, _ := onnx.NewTensor("later", onnx.Bool, ints(n, n), later)
	s = b.Op("Where", b.Graph.AddInitializer(mask), -1e9, s)
	b.Output(b.Op("MatMul", b.Op("Softmax", s), x))
}

// split cuts sums into as many parts as there are positions, and joins them.
func split(b *onnxtest.Builder, x *onnx.Value, _, n int) {
	parts := make([]*onnx.Value, n)
	for i := range parts {
		parts[i] = b.Graph.NewValue("part")
	}
	b.Graph.AddNode("Split", []*onnx.Value{b.Op("CumSum", x, 1)}, parts, onnx.IntAttr("axis", 1))
	y := b.Graph.NewValue("y")
	b.Graph.AddNode("Concat", parts, []*onnx.Value{y}, onnx.IntAttr("axis", 1))
	b.Output(y)
}

// channels cuts sums into three parts along an axis that stays, and exchanges two.
func channels(b *onnxtest.Builder, x *onnx.Value, _, _ int) {
	p := []*onnx.Value{b.Graph.NewValue("q"), b.Graph.NewValue("k"), b.Graph.NewValue("v")}
	b.Graph.AddNode("Split", []*onnx.Value{b.Op("CumSum", x, 1), b.Ints(8, 4, 4)}, p, onnx.IntAttr("axis", 2))
	b.Output(b.Op("Concat", p[0], p[2], p[1], onnx.IntAttr("axis", 2)))
}

// grid reads a channel by the indices of rows and positions.
func grid(b *onnxtest.Builder, x *onnx.Value, batch, n int) {
	var places []int64
	for i := range batch * n {
		places = append(places, int64(i/n), int64(i%n))
	}
	at := onnx.NewInt64s("places", places)
	at.Dims = ints(batch, 1, 1, n, 2)
	y := b.Op("GatherND", b.Op("Gather", x, 0, onnx.IntAttr("axis", 2)), b.Constant(at))
	y = b.Op("Where", b.Op("Greater", y, 0.3), y, -9.0)
	s := scores(b, x)
	s = b.Op("Add", b.Op("Unsqueeze", s, []int64{1}), y)
	y = b.Op("MatMul", b.Op("Softmax", s), b.Op("Unsqueeze", x, []int64{1}))
	b.Output(b.Op("Squeeze", y, []int64{1}))
}

// layers joins four heads with the batch, which is as much as the length, in each of five layers.
func layers(b *onnxtest.Builder, x *onnx.Value, batch, n int) {
	for range 5 {
		y := b.Op("Transpose", b.Op("Reshape", x, ints(batch, n, 4, 4)), onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
		y = b.Op("CumSum", b.Op("Reshape", y, ints(4*batch, n, 4)), 1)
		y = b.Op("Transpose", b.Op("Reshape", y, ints(batch, 4, n, 4)), onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
		x = b.Op("Add", x, b.Op("Tanh", b.Op("Reshape", y, ints(batch, n, width))))
	}
	b.Output(x)
}

// turned has as many heads as rows in three layers, and shapes of one kind before and after they are turned.
func turned(b *onnxtest.Builder, x *onnx.Value, batch, n int) {
	perm := onnx.IntsAttr("perm", []int64{0, 2, 1, 3})
	var count []int64
	for i := range n {
		count = append(count, int64(i))
	}
	queries := onnx.NewInt64s("queries", count)
	queries.Dims = ints(n, 1)
	seen := b.Op("LessOrEqual", count, b.Constant(queries))
	for range 3 {
		head := func(shape []int64) *onnx.Value {
			return b.Op("Transpose", b.Op("Reshape", b.Op("MatMul", x, weights(b, width)), shape), perm)
		}
		q, k, v := head(ints(batch, n, -1, 4)), head(ints(batch, -1, 4, 4)), head(ints(batch, -1, 4, 4))
		s := b.Op("MatMul", q, b.Op("Transpose", k, onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
		s = b.Op("Where", seen, s, -1e9)
		y := b.Op("MatMul", b.Op("Softmax", s), v)
		y = b.Op("Transpose", b.Op("Reshape", y, ints(batch, -1, n, 4)), perm)
		x = b.Op("Add", x, b.Op("Tanh", b.Op("Reshape", y, ints(batch, n, -1))))
	}
	b.Output(x)
}

// experts joins batch and rows, whose numbers divide the width, for two experts in each of three layers.
func experts(b *onnxtest.Builder, x *onnx.Value, batch, n int) {
	for range 3 {
		y := b.Op("Reshape", b.Op("Reshape", b.Op("CumSum", x, 1), ints(-1, width)), ints(-1, width))
		y = b.Op("Reshape", b.Op("Tile", b.Op("Unsqueeze", y, []int64{1}), []int64{1, 2, 1}), ints(-1, width))
		y = b.Op("Reshape", b.Op("MatMul", y, weights(b, width)), ints(batch*n, 2, width))
		y = b.Op("Reshape", b.Op("ReduceSum", y, []int64{1}, onnx.IntAttr("keepdims", 0)), ints(batch, n, width))
		x = b.Op("Add", x, b.Op("Tanh", y))
	}
	b.Output(x)
}

// chunks attends to chunks of four positions.
func chunks(b *onnxtest.Builder, x *onnx.Value, batch, n int) {
	y := b.Op("Reshape", x, ints(batch, n/4, 4, width))
	s := b.Op("MatMul", y, b.Op("Transpose", y, onnx.IntsAttr("perm", []int64{0, 1, 3, 2})))
	y = b.Op("MatMul", b.Op("Softmax", s), y)
	b.Output(b.Op("Reshape", y, ints(batch, n, width)))
}

func reversed(b *onnxtest.Builder, x *onnx.Value, _, n int) {
	at := make([]int64, n)
	for i := range at {
		at[i] = int64(n - 1 - i)
	}
	b.Output(b.Op("Gather", x, at, onnx.IntAttr("axis", 1)))
}

// pairs reads the first of two positions.
func pairs(b *onnxtest.Builder, x *onnx.Value, batch, n int) {
	y := b.Op("Slice", x, []int64{0}, ints(n/2*2), []int64{1})
	y = b.Op("Reshape", y, ints(batch, n/2, 2*width))
	b.Output(b.Op("Slice", y, []int64{0}, []int64{width}, []int64{2}))
}

// wavy adds sines and cosines of positions, with a common base.
func wavy(b *onnxtest.Builder, x *onnx.Value, _, n int) { waves(b, x, n, 10000) }

func rough(b *onnxtest.Builder, x *onnx.Value, _, n int) { waves(b, x, n, 7777) }

func waves(b *onnxtest.Builder, x *onnx.Value, n int, base float64) {
	v := make([]float32, 0, n*width)
	for i := range n {
		for k := range width {
			rate := float32(math.Pow(base, -float64(k%(width/2))/(width/2)))
			angle := float64(float32(i) * rate)
			if k < width/2 {
				v = append(v, float32(math.Sin(angle)))
			} else {
				v = append(v, float32(math.Cos(angle)))
			}
		}
	}
	b.Output(b.Op("Add", x, b.Floats(ints(n, width), v...)))
}

// ones masks scores with a row of ones: all keys are valid.
func ones(b *onnxtest.Builder, x *onnx.Value, _, n int) {
	s := scores(b, x)
	row := make([]float32, n)
	s = b.Op("Add", s, b.Floats(ints(1, 1, n), row...))
	b.Output(b.Op("MatMul", b.Op("Softmax", s), x))
}

// biased is attention with a bias for each query and key.
func biased(bias func(b *onnxtest.Builder, n int) *onnx.Value) graph {
	return func(b *onnxtest.Builder, x *onnx.Value, _, n int) {
		s := scores(b, x)
		b.Output(b.Op("MatMul", b.Op("Softmax", b.Op("Add", s, bias(b, n))), x))
	}
}

// distances is a table of key - query, limited, plus a number.
func distances(b *onnxtest.Builder, n, limit, plus int) *onnx.Value {
	v := make([]int64, n*n)
	for i := range v {
		v[i] = int64(max(-limit, min(limit, i%n-i/n)) + plus)
	}
	t := onnx.NewInt64s("distances", v)
	t.Dims = ints(n, n)
	return b.Constant(t)
}

// buckets has a bias for each of four buckets, as T5's decoder has: distances, zeros and the last bucket are tables.
func buckets(b *onnxtest.Builder, n int) *onnx.Value {
	far := b.Op("Neg", b.Op("Min", distances(b, n, 99, 0), distances(b, n, 0, 0)))
	at := b.Op("Where", b.Op("Less", far, 2), far,
		b.Op("Min", b.Op("Div", b.Op("Add", far, 3), 2), distances(b, n, 0, 3)))
	return b.Op("Squeeze", b.Op("Gather", b.Floats(ints(4, 1), 0.5, -1, 2, -3), at), []int64{2})
}

func earlier(b *onnxtest.Builder, n int) *onnx.Value {
	return b.Op("Add", buckets(b, n), triangle(b, n))
}

func slopes(b *onnxtest.Builder, n int) *onnx.Value {
	v := make([]float32, 0, 2*n*n)
	for k := range 2 {
		for i := range n * n {
			v = append(v, -float32(max(i%n-i/n, i/n-i%n))/float32(int(4)<<k))
		}
	}
	return b.Op("ReduceSum", b.Floats(ints(2, n, n), v...), []int64{0}, onnx.IntAttr("keepdims", 0))
}

// learned has a bias for each distance, up to a limit.
func learned(limit int) graph {
	return biased(func(b *onnxtest.Builder, n int) *onnx.Value { return lookedUp(b, distances(b, n, limit, 32)) })
}

// magnitudes has a bias for each magnitude of a distance.
func magnitudes(b *onnxtest.Builder, n int) *onnx.Value {
	return lookedUp(b, b.Op("Cast", b.Op("Abs", distances(b, n, 99, 0)), onnx.IntAttr("to", int64(onnx.Int32))))
}

func lookedUp(b *onnxtest.Builder, indices *onnx.Value) *onnx.Value {
	v := make([]float32, 65)
	for i := range v {
		v[i] = float32(math.Sin(float64(i * i)))
	}
	return b.Op("Gather", b.Floats(ints(65), v...), indices)
}

// triangle makes a mask of ones.
func triangle(b *onnxtest.Builder, n int) *onnx.Value {
	ones := b.Floats(ints(n, n), slices.Repeat([]float32{1}, n*n)...)
	return b.Op("Mul", b.Op("Sub", b.Op("Trilu", ones, onnx.IntAttr("upper", 0)), 1.0), 1e9)
}

// pool returns the mean of all positions.
func pool(b *onnxtest.Builder, x *onnx.Value, _, n int) {
	y := b.Op("Transpose", x, swap())
	b.Output(b.Op("AveragePool", y, onnx.IntsAttr("kernel_shape", ints(n))))
}

// six returns the mean of six positions.
func six(b *onnxtest.Builder, x *onnx.Value, _, _ int) {
	y := b.Op("Transpose", x, swap())
	b.Output(b.Op("AveragePool", y, onnx.IntsAttr("kernel_shape", ints(6)), onnx.IntsAttr("pads", ints(5, 0))))
}

// loop sums positions one by one.
func loop(b *onnxtest.Builder, x *onnx.Value, _, n int) {
	body := onnxtest.Builder{Model: b.Model, Graph: b.Graph.NewSubgraph("body")}
	i := body.Input("i", onnx.Int64)
	going := body.Input("going", onnx.Bool)
	sum := body.Input("sum", onnx.Float, "", width)
	body.Output(body.Op("Identity", going))
	body.Output(body.Op("Tanh", body.Op("Add", sum, body.Op("Gather", x, i, onnx.IntAttr("axis", 1)))))
	start := b.Op("Gather", x, 0, onnx.IntAttr("axis", 1))
	b.Output(b.Op("Loop", n, b.Op("Cast", 1, onnx.IntAttr("to", int64(onnx.Bool))), start,
		onnx.GraphAttr("body", body.Graph)))
}
