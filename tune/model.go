package tune

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/golden"
	"github.com/mojo-patch/mojo-patch/onnx"
)

const (
	opset, irVersion = 21, 10
	// A model has enough nodes to read this much, so that no node finds its weights in the device's cache.
	readBytes              = 400 << 20
	leastNodes, most       = 4, 16
	patternBytes     int64 = 1 << 24 // of weights, which repeat
)

// input is an input of the measured model; number is the op's input.
type input struct {
	name   string
	number int
	typ    onnx.DataType
	dims   []int64
}

// model returns a model of several nodes with separate tokens and choices, and shared weights.
func (e *Experts) model(tokens int64, nodes int) (*onnx.Model, []input) {
	m := onnx.New(irVersion, opset)
	m.ImportOpset(fused.Domain, fused.Version)
	m.Graph.Name = "experts"
	site := e.site(tokens)
	var inputs []input
	values := map[string]*onnx.Value{}
	for i := range nodes {
		var in []*onnx.Value
		for k, p := range e.op.Inputs {
			if site.Types[k] == onnx.Undefined {
				in = append(in, nil)
				continue
			}
			name := p.Name
			if k < fused.MoEGateUp {
				name = fmt.Sprintf("%s_%d", p.Name, i)
			}
			if values[name] == nil {
				values[name] = m.Graph.AddInput(name, onnx.TensorType(site.Types[k], site.Dims[k]))
				inputs = append(inputs, input{name, k, site.Types[k], site.Dims[k]})
			}
			in = append(in, values[name])
		}
		for len(in) > 0 && in[len(in)-1] == nil {
			in = in[:len(in)-1]
		}
		y := m.Graph.NewValue(fmt.Sprintf("Y_%d", i))
		y.SetType(onnx.TensorType(site.Types[fused.MoEX], site.Dims[fused.MoEX]))
		n := m.Graph.AddNode(e.op.Name, in, []*onnx.Value{y}, e.attributes...)
		n.Domain = fused.Domain
		m.Graph.AddOutput(y)
	}
	return m, inputs
}

// weight makes an input of weights. The numbers repeat, but each expert's are at other addresses.
func (e *Experts) weight(in input) (*onnx.Tensor, error) {
	t := &onnx.Tensor{DataType: in.typ, Dims: in.dims}
	b := make([]byte, t.Size())
	r := rand.New(rand.NewPCG(uint64(in.number), 7))
	name, width := e.op.Inputs[in.number].Name, float64(max(e.Shape.Hidden, e.Shape.Inner))
	size := in.typ.Bits() / 8
	pattern := b[:min(int64(len(b)), patternBytes)]
	for i := 0; i+size <= len(pattern); i += size {
		x := r.NormFloat64() / math.Sqrt(width)
		switch {
		case in.typ == onnx.Uint8 && strings.HasSuffix(name, "scale"): // exponents
			pattern[i] = byte(127 - math.Ceil(math.Log2(width)/2) - 1)
		case in.typ == onnx.Uint8:
			if pattern[i] = byte(r.Uint32()); e.Shape.Format == FP8 {
				pattern[i] &= 0xbf // magnitudes below 2, and no NaN
			}
		case strings.HasSuffix(name, "scale"):
			golden.PutFloat(in.typ, pattern[i:], 0, 1/math.Sqrt(width))
		default:
			golden.PutFloat(in.typ, pattern[i:], 0, x)
		}
	}
	for at := len(pattern); at < len(b); at *= 2 {
		copy(b[at:], b[:at])
	}
	return onnx.NewTensor(in.name, in.typ, in.dims, b)
}

// call makes an input that is not weights: random tokens, or distinct random experts for each token.
func (e *Experts) call(in input, r *rand.Rand) (*onnx.Tensor, error) {
	t := &onnx.Tensor{DataType: in.typ, Dims: in.dims}
	b := make([]byte, t.Size())
	switch in.number {
	case fused.MoEIDs:
		for token := range in.dims[0] {
			for j, id := range r.Perm(int(e.Shape.Experts))[:e.Shape.TopK] {
				binary.LittleEndian.PutUint64(b[8*(token*e.Shape.TopK+int64(j)):], uint64(id))
			}
		}
	default:
		size := in.typ.Bits() / 8
		for i := 0; i < len(b); i += size {
			x := r.NormFloat64()
			if in.number == fused.MoEWeights {
				x = 1 / float64(e.Shape.TopK)
			}
			golden.PutFloat(in.typ, b[i:], 0, x)
		}
	}
	return onnx.NewTensor(in.name, in.typ, in.dims, b)
}

// nodes returns the number of nodes of a model.
func (e *Experts) nodes(tokens int64) int {
	hit := min(float64(e.Shape.Experts), float64(tokens*e.Shape.TopK))
	bits := map[string]float64{MXFP4: 4.25, FP8: 8}[e.Shape.Format]
	if bits == 0 {
		bits = 16
	}
	bytes := hit * 3 * float64(e.Shape.Hidden*e.Shape.Inner) * bits / 8
	return min(max(int(math.Ceil(readBytes/bytes)), leastNodes), most)
}
