package quantize

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// LeastElements is the minimum size of a weight to be rounded without being named.
const LeastElements = 4096

// Options select the weights to round, and their formats.
type Options struct {
	// Format is the default format. Head is for matrices with a row for each token of the vocabulary: the product that
	// computes logits, and the token table. Experts is for the weights of mojo.MoE. "" means Format.
	Format, Head, Experts string
	// Only and Skip, if not nil, match names of weights and of the nodes that read them.
	Only, Skip *regexp.Regexp
	// Activations is the attribute of mojo.Linear; "" means int16.
	Activations string
}

// A Weight is a weight that is rounded.
type Weight struct {
	Name   string   `json:"name"`
	Nodes  []string `json:"nodes"` // its readers
	Format string   `json:"format"`
	// N and K: the weight turns a row of K numbers into N numbers.
	N int64 `json:"n"`
	K int64 `json:"k"`
	// Experts is the number of such matrices of a mixture, or 0 for a single matrix.
	Experts int64 `json:"experts,omitempty"`
	// Before and After are its sizes in bytes, and Bits is the size of an element. A weight that shares another one's
	// elements takes no bytes.
	Before int64   `json:"bytes_before"`
	After  int64   `json:"bytes_after"`
	Bits   float64 `json:"bits"`
	// RMS is the root mean square of the differences relative to the elements. Cosine is the cosine of the
	// angle between the two.
	RMS    float64 `json:"relative_rms"`
	Cosine float64 `json:"cosine"`
	// Product is the RMS of the weight's products on recorded activations, or nil if there are no such activations.
	Product *float64 `json:"product_rms,omitempty"`

	value    *onnx.Value
	turned   bool // [K, N]
	matrix   *matrix
	products []*onnx.Node
	others   []*onnx.Node // Gather and MoE
}

// Skipped is a weight that is not rounded.
type Skipped struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
	Bytes  int64  `json:"bytes"`
}

// A Plan lists the weights of a model to round, and the others.
type Plan struct {
	Weights []*Weight
	Skipped []Skipped

	model   *onnx.Model
	options Options
}

// Find looks for the weights of a model.
func Find(m *onnx.Model, o Options) (*Plan, error) {
	if o.Head == "" {
		o.Head = o.Format
	}
	if o.Activations == "" {
		o.Activations = "int16"
	}
	if o.Experts == "" {
		o.Experts = o.Format
	}
	for _, name := range []string{o.Format, o.Head, o.Experts} {
		if err := Check(name); err != nil {
			return nil, err
		}
	}
	p := &Plan{model: m, options: o}
	f := &finder{options: o, gates: gates(m), vocabulary: roles.Vocabulary(m), positions: map[*onnx.Value]bool{}}
	for _, in := range roles.Find(m) {
		f.positions[in.Value] = in.Role == roles.Position || in.Role == roles.Mask || in.Role == roles.Past
	}
	for _, g := range m.Graphs() {
		for _, v := range g.Initializers() {
			t := v.Const
			if !t.DataType.IsFloat() || t.DataType.Bits() < 16 || len(t.Dims) < 2 && t.Len() < LeastElements {
				continue
			}
			w, err := f.weight(v)
			if err != nil {
				p.Skipped = append(p.Skipped, Skipped{v.Name, err.Error(), max(t.Size(), 0)})
				continue
			}
			p.Weights = append(p.Weights, w)
		}
	}
	p.share()
	return p, nil
}

type finder struct {
	options    Options
	gates      map[*onnx.Node]bool
	vocabulary int64
	positions  map[*onnx.Value]bool // inputs with positions of tokens
}

// reader is a node that reads a weight as a matrix.
type reader struct {
	node  *onnx.Node
	inOut bool // reads the initializer as [in, out]
}

// readers lists the nodes that read a value as a matrix or a table. turned means that it is the transposed initializer.
func readers(v *onnx.Value, turned bool) (list []reader) {
	for _, u := range v.Uses() {
		switch n := u.Node; {
		case u.Index == 0 && (n.Is("Identity") || n.Is("Cast")):
			list = append(list, readers(n.Outputs[0], turned)...)
		case u.Index == 0 && n.Is("Transpose"):
			list = append(list, readers(n.Outputs[0], !turned)...)
		case u.Index == 1 && n.Is("MatMul"):
			list = append(list, reader{n, !turned})
		case u.Index == 1 && (n.Is("Gemm") || n.Domain == onnx.Microsoft && n.OpType == "FusedMatMul"):
			list = append(list, reader{n, turned != (n.AttrInt("transB", 0) == 0)})
		case u.Index == 0 && n.Is("Gather"):
			list = append(list, reader{n, turned})
		case n.Domain == fused.Domain && n.OpType == fused.MoEName && (u.Index == fused.MoEGateUp ||
			u.Index == fused.MoEDown):
			layout := fused.ExpertLayout(u.Index)
			list = append(list, reader{n, n.AttrString(layout, "") == "in_out"})
		}
	}
	return list
}

// alreadyQuantized reports whether only ops with quantized weights read v.
func alreadyQuantized(v *onnx.Value) bool {
	uses := v.Uses()
	return len(uses) > 0 && !slices.ContainsFunc(uses, func(u onnx.Use) bool {
		n := u.Node
		ours := n.Domain == fused.Domain && (n.OpType == fused.LinearName || n.OpType == fused.EmbeddingName)
		microsofts := n.Domain == onnx.Microsoft && (n.OpType == "MatMulNBits" || n.OpType == "GatherBlockQuantized")
		return !ours && !microsofts && !n.Is("DequantizeLinear")
	})
}

// weight describes a weight, or returns an error that says why it stays.
func (f *finder) weight(v *onnx.Value) (*Weight, error) {
	list, t := readers(v, false), v.Const
	w := &Weight{Name: v.Name, Nodes: []string{}, Before: t.Size(), value: v}
	names, table, gate, experts := []string{v.Name}, false, false, false
	for _, r := range list {
		if !slices.Contains(w.Nodes, nameOf(r.node)) {
			w.Nodes = append(w.Nodes, nameOf(r.node))
		}
		names = append(names, r.node.Name)
		gate = gate || f.gates[r.node]
		if r.node.OpType == fused.MoEName {
			experts, w.others = true, append(w.others, r.node)
		} else if r.node.Is("Gather") {
			w.others = append(w.others, r.node)
			table = table || !f.byTokens(r.node.Input(1), map[*onnx.Value]bool{})
		} else {
			w.products = append(w.products, r.node)
		}
	}
	fits := func(r *regexp.Regexp) bool { return r != nil && slices.ContainsFunc(names, r.MatchString) }
	named := fits(f.options.Only)
	switch {
	case alreadyQuantized(v):
		return nil, fmt.Errorf("it belongs to weights that are already quantized")
	case fits(f.options.Skip):
		return nil, fmt.Errorf("--skip names it")
	case f.options.Only != nil && !named:
		return nil, fmt.Errorf("--only does not name it")
	case len(t.Dims) == 3 && !experts:
		return nil, fmt.Errorf("it has 3 dimensions: experts are rounded only after apply turned them into mojo.MoE")
	case len(t.Dims) != 2 && !(len(t.Dims) == 3 && experts), len(t.Dims) == 2 && experts:
		return nil, fmt.Errorf("it has %d dimensions, but its reader takes another number", len(t.Dims))
	case len(list) == 0:
		return nil, fmt.Errorf("neither a product nor a Gather reads it as a matrix")
	case t.External != nil && missing(t):
		return nil, fmt.Errorf("its elements are missing")
	case blocks.ReaderOf(t.DataType) == nil || t.DataType == onnx.Double:
		return nil, fmt.Errorf("its type is %s", t.DataType)
	case named:
	case t.Len() < LeastElements:
		return nil, fmt.Errorf("it has fewer than %d elements", LeastElements)
	case table && len(w.products) == 0:
		return nil, fmt.Errorf("it is a table of positions: no token chooses its rows")
	}
	dims := t.Dims[len(t.Dims)-2:]
	m := &matrix{tensor: t, inOut: list[0].inOut, n: dims[0], k: dims[1], name: f.options.Format}
	if m.inOut {
		m.n, m.k = m.k, m.n
	}
	rows := m.n
	switch {
	case experts:
		m.experts, m.name = t.Dims[0], f.options.Experts
		m.n *= m.experts
	case f.vocabulary > 0 && m.n == f.vocabulary:
		m.name = f.options.Head
	case gate && !named:
		return nil, fmt.Errorf("it is the gate of a router")
	}
	var err error
	switch m.format, err = lookup(m.name); {
	case err != nil:
		return nil, err
	case m.format == nil:
		return nil, fmt.Errorf("it is left in float")
	case m.k == 0 || m.n == 0 || m.k%int64(m.format.Elements) != 0:
		return nil, fmt.Errorf("row length %d is not a multiple of the block size %d", m.k, m.format.Elements)
	case m.isHalf() && t.DataType != onnx.Float:
		return nil, fmt.Errorf("its type is already %s", t.DataType)
	case experts && !m.isHalf() && rows%blocks.PanelRows != 0:
		return nil, fmt.Errorf("its experts have %d rows, which is not a multiple of %d", rows, blocks.PanelRows)
	}
	w.Format, w.N, w.K, w.Experts, w.matrix, w.turned = m.name, rows, m.k, m.experts, m, m.inOut
	w.After = 2 * m.n * m.k
	if !m.isHalf() {
		w.After = int64(m.format.Panels().RowSize(m.k) * float64(m.n))
	}
	w.Bits = 8 * float64(w.After) / float64(m.n*m.k)
	return w, nil
}

// missing reports whether the elements are in a file that does not exist.
func missing(t *onnx.Tensor) bool {
	_, err := t.Bytes()
	return err != nil
}

// nameOf returns the name of a node, or of its first output.
func nameOf(n *onnx.Node) string {
	if n.Name == "" && len(n.Outputs) > 0 && n.Outputs[0] != nil {
		return n.Outputs[0].Name
	}
	return n.Name
}

// byTokens reports whether an index depends on an input other than positions of tokens. Values that depend only on
// shapes do not count.
func (f *finder) byTokens(v *onnx.Value, seen map[*onnx.Value]bool) bool {
	if v == nil || seen[v] {
		return false
	}
	seen[v] = true
	n := v.Producer
	if n == nil {
		return v.Const == nil && !f.positions[v]
	}
	if n.Is("Shape") || n.Is("Size") {
		return false
	}
	for _, in := range n.Inputs {
		if f.byTokens(in, seen) {
			return true
		}
	}
	return false
}

// gates returns the products whose results routers choose among, with no other product in between.
func gates(m *onnx.Model) map[*onnx.Node]bool {
	found, seen := map[*onnx.Node]bool{}, map[*onnx.Value]bool{}
	var back func(v *onnx.Value)
	back = func(v *onnx.Value) {
		if v == nil || seen[v] || v.Producer == nil {
			return
		}
		seen[v] = true
		n := v.Producer
		switch {
		case n.IsProduct():
			found[n] = true
		case onnx.IsStandardDomain(n.Domain) && !n.Is("Shape"):
			for _, in := range n.Inputs {
				back(in)
			}
		}
	}
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			switch {
			case n.Is("TopK"), n.Is("ArgMax"), n.Domain == fused.Domain && n.OpType == fused.TopKRouterName:
				back(n.Input(0))
			case n.Domain == onnx.Microsoft && (n.OpType == "MoE" || n.OpType == "QMoE"):
				back(n.Input(1))
			}
		}
	}
	return found
}

// share makes weights with equal elements, such as a table and its transposed copy, use one matrix.
func (p *Plan) share() {
	for i, w := range p.Weights {
		for _, other := range p.Weights[:i] {
			if other.matrix.equal(w.matrix) {
				w.matrix, w.After = other.matrix, 0
				break
			}
		}
	}
}
