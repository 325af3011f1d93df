package quantized

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// halfRule is the pattern name in the metadata of products with 16-bit weights (MetaRule).
const halfRule = "HalfWeights"

// Half makes products read float16 and bfloat16 constants as they are stored: it replaces MatMul, Gemm and FusedMatMul,
// and the casts and transpositions between weight and product, by mojo.HalfLinear. Each kind of product is checked with
// the first outputs of its weight; checks has the figures.
func Half(run *pass.Run) (r *ProductsReport, checks *Report, err error) {
	if err := pass.CheckDomain(run.Model); err != nil {
		return nil, nil, err
	}
	q := newQuantizer(run, nil, "float")
	r = &ProductsReport{Emits: map[string]int{}, Open: map[string]int{}}
	for _, s := range run.Scopes() {
		for _, n := range s.Graph.Nodes {
			p := halfProduct(n)
			if p == nil {
				continue
			}
			name := onnx.OpName(n.Domain, n.OpType)
			err := p.read(q)
			if err == nil {
				err = q.once(p.key(), func() error { return q.tryHalf(p) })
			}
			if err != nil {
				r.Open[name+" with weights of "+p.weight.Const.DataType.String()+": "+err.Error()]++
				continue
			}
			if err := q.placeHalf(p); err != nil {
				return nil, nil, err
			}
			r.Emits["mojo.HalfLinear instead of "+name]++
		}
	}
	if len(r.Emits) == 0 {
		return r, q.report, nil
	}
	r.Check = &prove.CheckReport{MaxRel: q.report.Definition, Structural: q.report.Structural}
	if q.report.Kernels > 0 {
		r.Check.Kernel = &q.report.Kernel
	}
	return r, q.report, q.declareAll()
}

// half is a product with a constant 16-bit matrix.
type half struct {
	reader
	weight *onnx.Value
	inOut  bool // the matrix is [K, N]
	n, k   int64
}

// halfProduct returns the product computed by a node, or nil if the node is not such a product.
func halfProduct(n *onnx.Node) *half {
	p := &half{reader: reader{node: n}, inOut: true}
	switch {
	case n.Is("MatMul"):
	case n.Is("Gemm"), isFusedMatMul(n):
		p.inOut = n.AttrInt("transB", 0) == 0
	default:
		return nil
	}
	v := n.Input(1)
	for v != nil && v.Producer != nil {
		view := v.Producer
		switch {
		case view.Is("Identity"), view.Is("Cast"):
		case view.Is("Transpose") && isSwap(view):
			p.inOut = !p.inOut
		default:
			return nil
		}
		p.views = append(p.views, view)
		v = view.Input(0)
	}
	if v == nil || v.Const == nil || len(v.Const.Dims) != 2 || !isHalf(v.Const.DataType) || v.Const.Len() == 0 {
		return nil
	}
	p.weight, p.k, p.n = v, v.Const.Dims[0], v.Const.Dims[1]
	if !p.inOut {
		p.k, p.n = p.n, p.k
	}
	return p
}

func isHalf(t onnx.DataType) bool { return t == onnx.Float16 || t == onnx.BFloat16 }

// read finds the type and the bias of the product. It returns an error if the product must stay.
func (p *half) read(q *quantizer) error {
	stored := p.weight.Const.DataType
	p.typ = stored
	for _, view := range slices.Backward(p.views) { // starting at the weight
		if !view.Is("Cast") {
			continue
		}
		if p.typ = onnx.DataType(view.AttrInt("to", 0)); p.typ != onnx.Float && p.typ != stored {
			return fmt.Errorf("node %q (Cast) rounds the weights to %s", view.Label(), p.typ)
		}
	}
	if t := q.typeOf(p.node.Input(0)); t != p.typ {
		return fmt.Errorf("node %q multiplies them with %s", p.node.Label(), t)
	}
	if p.node.Is("Gemm") {
		return p.gemm(p.n)
	}
	p.addition(p.n)
	return nil
}

// key is equal for products of the same kind.
func (p *half) key() string {
	return fmt.Sprint("HalfLinear ", p.node.OpType, p.typ, p.weight.Const.DataType, p.inOut, p.bias != nil, p.k,
		min(p.n, sampleRows))
}

// attributes returns the attributes of the op.
func (p *half) attributes() []*onnx.Attribute {
	op := fused.HalfLinear{Layout: "out_in"}
	if p.inOut {
		op.Layout = "in_out"
	}
	return op.Attributes()
}

// placeHalf replaces the product by the op.
func (q *quantizer) placeHalf(p *half) error {
	n, g := p.node, p.node.Graph
	inputs := []*onnx.Value{n.Input(0), p.weight}
	if p.bias != nil {
		inputs = append(inputs, p.bias)
	}
	made := q.edit.NewNode(g, fused.HalfLinearName, inputs, nil, p.attributes()...)
	made.Name = n.Label() + "_HalfLinear"
	made.Metadata = append(slices.Clone(n.Metadata), q.run.Origin(halfRule, n)...)
	last := n
	if p.added != nil {
		last = p.added
	}
	q.edit.TakeOutput(made, 0, last.Outputs[0])
	f, err := fused.Lookup(fused.HalfLinearName).Function(typedSite(made, q.typeOf, p.typ, q.run.Model.Opset("")))
	if err != nil {
		return fmt.Errorf("node %q: %w", n.Label(), err)
	}
	q.edit.SetDomain(made, fused.Domain, f.Overload)
	q.functions[edit.FunctionName(f)] = f
	q.replace(p.reader, []*onnx.Node{made})
	return nil
}
