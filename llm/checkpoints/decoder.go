package checkpoints

import (
	"fmt"
	"math"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
)

// Model is a decoder with random weights: the graph as torch.onnx exports it but without weights, and the weights as in
// the architecture's checkpoints. The graph computes logits from input_ids and, if it has a cache, pasts.
type Model struct {
	Graph   *onnx.Model
	Tensors []Tensor
}

// decoder builds a Model.
type decoder struct {
	*onnxtest.Builder
	Model
	epsilon         float64
	ids             *onnx.Value
	batch, sequence *onnx.Value // vectors of one element
	positions       *onnx.Value
	// total is the length of past and sequence together, keys their positions.
	total, keys     *onnx.Value
	pasts, presents []*onnx.Value // caches, if any
}

func newDecoder(epsilon float64) *decoder {
	d := &decoder{Builder: onnxtest.New(20), epsilon: epsilon}
	d.Model.Graph = d.Builder.Model
	d.ids = d.Input("input_ids", onnx.Int64, "batch", "sequence")
	d.batch, d.sequence = d.size(d.ids, 0), d.size(d.ids, 1)
	d.positions = d.Op("Range", 0, d.Op("Squeeze", d.sequence), 1)
	d.total, d.keys = d.sequence, d.positions
	return d
}

// newCachedDecoder is a decoder whose sequence continues a past: the keys and values of each layer.
func newCachedDecoder(epsilon float64, layers, heads, width int64) *decoder {
	d := newDecoder(epsilon)
	for i := range layers {
		for _, name := range []string{"key", "value"} {
			d.pasts = append(d.pasts, d.Input(fmt.Sprintf("past_key_values.%d.%s", i, name), onnx.Float, "batch",
				int(heads), "past", int(width)))
		}
	}
	past := d.size(d.pasts[0], 2)
	d.total = d.Op("Add", past, d.sequence)
	d.keys = d.Op("Range", 0, d.Op("Squeeze", d.total), 1)
	d.positions = d.Op("Range", d.Op("Squeeze", past), d.Op("Squeeze", d.total), 1)
	return d
}

// cached joins keys or values from heads with the next past.
func (d *decoder) cached(v *onnx.Value) *onnx.Value {
	past := d.pasts[len(d.presents)]
	all := d.Op("Concat", past, v, onnx.IntAttr("axis", 2))
	typ, _ := past.Type()
	all.Name = strings.Replace(past.Name, "past_key_values", "present", 1)
	all.SetType(onnxtest.Type(typ.DataType, "batch", int(typ.Dims[1].Value), "total", int(typ.Dims[3].Value)))
	d.presents = append(d.presents, all)
	return all
}

// size returns the size of an axis as a vector of one element.
func (d *decoder) size(v *onnx.Value, axis int64) *onnx.Value {
	return d.Op("Shape", v, onnx.IntAttr("start", axis), onnx.IntAttr("end", axis+1))
}

// parameter adds an initializer without elements.
func (d *decoder) parameter(name string, dims ...int64) *onnx.Value {
	length := int64(4)
	for _, n := range dims {
		length *= n
	}
	t, err := onnx.NewReference(name, onnx.Float, dims, onnx.External{Location: "absent.bin", Length: length})
	if err != nil {
		panic(err) // this package chose the dimensions
	}
	return d.Builder.Graph.AddInitializer(t)
}

func (d *decoder) store(t ...Tensor) { d.Tensors = append(d.Tensors, t...) }

// vector adds a parameter that the checkpoint has in bfloat16, around a mean.
func (d *decoder) vector(name string, mean float64, dims ...int64) *onnx.Value {
	d.store(bfloat16(name, mean, 0.1, dims...))
	return d.parameter(name, dims...)
}

// linear adds a linear layer without bias; its weight is FP8 if quantized is set.
func (d *decoder) linear(module string, x *onnx.Value, out, in int64, quantized bool) *onnx.Value {
	name := module + ".weight"
	if quantized {
		d.store(fp8(name, out, in)...)
	} else {
		d.store(bfloat16(name, 0, 1/math.Sqrt(float64(in)), out, in))
	}
	weight := d.Op("Transpose", d.parameter(name, out, in), onnx.IntsAttr("perm", []int64{1, 0}))
	return d.Op("MatMul", x, weight)
}

// biased adds a linear layer of bfloat16 with a bias.
func (d *decoder) biased(module string, x *onnx.Value, out, in int64) *onnx.Value {
	return d.Op("Add", d.linear(module, x, out, in, false), d.vector(module+".bias", 0, out))
}

func (d *decoder) norm(module string, x *onnx.Value, width int64) *onnx.Value {
	mean := d.Op("ReduceMean", d.Op("Pow", x, 2.0), []int64{-1}, onnx.IntAttr("keepdims", 1))
	inverse := d.Op("Reciprocal", d.Op("Sqrt", d.Op("Add", mean, d.epsilon)))
	return d.Op("Mul", d.vector(module+".weight", 1, width), d.Op("Mul", x, inverse))
}

func (d *decoder) embedded(vocabulary, hidden int64) *onnx.Value {
	const name = "model.embed_tokens.weight"
	d.store(bfloat16(name, 0, 1, vocabulary, hidden))
	return d.Op("Gather", d.parameter(name, vocabulary, hidden), d.ids)
}

func (d *decoder) finish(x *onnx.Value, vocabulary, hidden int64) *Model {
	logits := d.linear("lm_head", d.norm("model.norm", x, hidden), vocabulary, hidden, false)
	logits.Name = "logits"
	logits.SetType(onnxtest.Type(onnx.Float, "batch", "sequence", int(vocabulary)))
	d.Output(logits)
	for _, v := range d.presents {
		d.Output(v)
	}
	return &d.Model
}

// angles returns the cosines and sines of the positions' angles, [1, 1, sequence, width/2].
func (d *decoder) angles(theta float64, width int64) (cos, sin *onnx.Value) {
	frequencies := make([]float32, width/2)
	for i := range frequencies {
		frequencies[i] = float32(math.Pow(theta, -2*float64(i)/float64(width)))
	}
	row := d.Op("Unsqueeze", d.positions, []int64{0}) // of the batch, as exports have it
	positions := d.Op("Cast", d.Op("Unsqueeze", row, []int64{2}), onnx.IntAttr("to", int64(onnx.Float)))
	angles := d.Op("Mul", positions, d.Floats([]int64{width / 2}, frequencies...))
	return d.Op("Unsqueeze", d.Op("Cos", angles), []int64{1}), d.Op("Unsqueeze", d.Op("Sin", angles), []int64{1})
}

// rotated rotates pairs of channels, given as two halves.
func (d *decoder) rotated(first, second, cos, sin *onnx.Value) *onnx.Value {
	return d.Op("Concat", d.Op("Sub", d.Op("Mul", first, cos), d.Op("Mul", second, sin)),
		d.Op("Add", d.Op("Mul", second, cos), d.Op("Mul", first, sin)), onnx.IntAttr("axis", -1))
}

// heads splits x [batch, sequence, heads * width] into [batch, heads, sequence, width].
func (d *decoder) heads(x *onnx.Value, width int64) *onnx.Value {
	shape := d.Op("Concat", d.batch, d.sequence, []int64{-1, width}, onnx.IntAttr("axis", 0))
	return d.Op("Transpose", d.Op("Reshape", x, shape), onnx.IntsAttr("perm", []int64{0, 2, 1, 3}))
}

// joined undoes heads.
func (d *decoder) joined(x *onnx.Value) *onnx.Value {
	shape := d.Op("Concat", d.batch, d.sequence, []int64{-1}, onnx.IntAttr("axis", 0))
	return d.Op("Reshape", d.Op("Transpose", x, onnx.IntsAttr("perm", []int64{0, 2, 1, 3})), shape)
}

// mask is 0 if a query sees a key, at most window positions before it, and the least number otherwise.
func (d *decoder) mask(window int64) *onnx.Value {
	rows, columns := d.Op("Unsqueeze", d.positions, []int64{1}), d.Op("Unsqueeze", d.keys, []int64{0})
	seen := d.Op("LessOrEqual", columns, rows)
	if window > 0 {
		seen = d.Op("And", d.Op("Greater", columns, d.Op("Sub", rows, int(window))), seen)
	}
	return d.Op("Where", seen, 0.0, -math.MaxFloat32)
}

// rows flattens x to one token per row. back restores the shape of y.
func (d *decoder) rows(x *onnx.Value, width int64) (rows *onnx.Value, back func(y *onnx.Value) *onnx.Value) {
	return d.Op("Reshape", x, []int64{-1, width}), func(y *onnx.Value) *onnx.Value {
		return d.Op("Reshape", y, d.Op("Concat", d.batch, d.sequence, []int64{width}, onnx.IntAttr("axis", 0)))
	}
}

// experts adds a mixture that gathers the weights of each token's chosen experts. one computes an expert for rows
// [tokens * chosen, width]; of takes the parts for each row's expert from a stack.
func (d *decoder) experts(x, shares, ids *onnx.Value, chosen, width int64,
	one func(x *onnx.Value, of func(stack *onnx.Value) *onnx.Value) *onnx.Value) *onnx.Value {
	repeated := d.Op("Expand", d.Op("Unsqueeze", x, []int64{1}), []int64{1, chosen, 1})
	repeated = d.Op("Reshape", repeated, []int64{-1, width})
	flat := d.Op("Unsqueeze", d.Op("Reshape", ids, []int64{-1}), []int64{-1})
	y := one(repeated, func(stack *onnx.Value) *onnx.Value { return d.Op("GatherND", stack, flat) })
	y = d.Op("Mul", y, d.Op("Unsqueeze", d.Op("Reshape", shares, []int64{-1}), []int64{-1}))
	return d.Op("ReduceSum", d.Op("Reshape", y, []int64{-1, chosen, width}), []int64{1}, onnx.IntAttr("keepdims", 0))
}

// gatedExperts adds gated experts with stacked matrices, gate and up fused.
func (d *decoder) gatedExperts(module string, x, shares, ids *onnx.Value, count, chosen, hidden, inner int64,
) *onnx.Value {
	up := d.parameter(module+"experts.gate_up_proj", count, 2*inner, hidden)
	down := d.parameter(module+"experts.down_proj", count, hidden, inner)
	return d.experts(x, shares, ids, chosen, hidden,
		func(x *onnx.Value, of func(stack *onnx.Value) *onnx.Value) *onnx.Value {
			times := func(x, weight *onnx.Value) *onnx.Value {
				return d.Op("Squeeze", d.Op("MatMul", of(weight), d.Op("Unsqueeze", x, []int64{-1})), []int64{-1})
			}
			halves := d.Ops(2, "Split", times(x, up), onnx.IntAttr("axis", 1), onnx.IntAttr("num_outputs", 2))
			return times(d.gated(halves[0], halves[1]), down)
		})
}

// gated returns silu(gate) * up.
func (d *decoder) gated(gate, up *onnx.Value) *onnx.Value {
	return d.Op("Mul", d.Op("Mul", gate, d.Op("Sigmoid", gate)), up)
}
