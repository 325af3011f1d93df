package parameters

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Roles identifies the weights of linear layers without names by their roles in a decoder. q and k are multiplied with
// each other before a Softmax, v with its result, and o takes that product. gate passes through an activation before it
// is multiplied with up, and down takes the product. The layer number is the number of o layers before it. If an
// attention does not fit, no weight gets a role.
func Roles(m *onnx.Model) map[*onnx.Value]string {
	d := &decoder{found: map[*onnx.Value]string{}, attention: map[*onnx.Node]bool{}, depth: map[*onnx.Value]int{}}
	d.attentions(m.Graph)
	d.count(m.Graph)
	if !d.nameAttentions() {
		return nil
	}
	d.mlps(m.Graph)
	d.ends(m.Graph)
	return d.found
}

// attention is the four products of an attention, or fewer if q, k and v are fused.
type attention struct{ q, k, v, o *onnx.Node }

type decoder struct {
	found     map[*onnx.Value]string
	layers    []attention
	attention map[*onnx.Node]bool // the products of attentions
	outputs   map[*onnx.Node]bool // the o products among them
	depth     map[*onnx.Value]int // the number of o layers on the way to a value
}

// weightOf returns the initializer that a product multiplies with, and the other input. The weight is nil if both
// factors are computed.
func weightOf(n *onnx.Node) (weight, data *onnx.Value) {
	if !n.Is("MatMul") && !n.Is("Gemm") {
		return nil, nil
	}
	for i := range 2 {
		v := n.Input(1 - i)
		for v != nil && v.Producer != nil && (v.Producer.Is("Transpose") || v.Producer.Is("Cast") ||
			v.Producer.Is("Identity")) {
			v = v.Producer.Input(0)
		}
		if v.IsConstant() && len(v.Const.Dims) == 2 {
			return v, n.Input(i)
		}
	}
	return nil, nil
}

// before lists the nearest products that a value is computed from, and whether an activation is on the way.
func before(v *onnx.Value) (products []*onnx.Node, activated bool) {
	for w := range onnx.Reach(func(v *onnx.Value) []*onnx.Value {
		switch n := v.Producer; {
		case n.IsProduct():
			return nil
		case isShaping(n):
			return n.Inputs[:min(1, len(n.Inputs))]
		}
		return v.MadeFrom()
	}, v) {
		switch n := w.Producer; {
		case n.IsProduct():
			products = append(products, n)
		default:
			activated = activated || isActivation(n)
		}
	}
	return products, activated
}

// after lists the nearest products that use a value.
func after(v *onnx.Value) (products []onnx.Use) {
	for w := range onnx.Reach(func(v *onnx.Value) (list []*onnx.Value) {
		for _, u := range v.Uses() {
			if n := u.Node; !n.IsProduct() && !n.Is("Shape") && !(isShaping(n) && u.Index > 0) {
				list = append(list, n.Outputs...)
			}
		}
		return list
	}, v) {
		for _, u := range w.Uses() {
			if u.Node.IsProduct() {
				products = append(products, u)
			}
		}
	}
	return products
}

func isActivation(n *onnx.Node) bool {
	if n == nil {
		return false
	}
	switch n.OpType {
	case "Sigmoid", "Gelu", "Erf", "Tanh", "Swish", "QuickGelu", "FastGelu", "Relu", "HardSwish":
		return true
	}
	return false
}

// isShaping reports whether all inputs of a node except the first are shapes or positions.
func isShaping(n *onnx.Node) bool {
	if n == nil {
		return false
	}
	switch n.OpType {
	case "Reshape", "Expand", "Slice", "Unsqueeze", "Squeeze", "Split", "Gather", "Tile", "Pad":
		return true
	}
	return false
}

// attentions finds the products around each Softmax, or around the fused op.
func (d *decoder) attentions(g *onnx.Graph) {
	for _, n := range g.Nodes {
		if n.Domain == fused.Domain && n.OpType == fused.AttentionName {
			a := attention{q: single(n.Input(fused.AttentionQ)), k: single(n.Input(fused.AttentionK)),
				v: single(n.Input(fused.AttentionV))}
			if next := after(n.OutputValue(0)); len(next) == 1 {
				a.o = next[0].Node
			}
			d.layers = append(d.layers, a)
			continue
		}
		if !n.Is("Softmax") {
			continue
		}
		scores, _ := before(n.Input(0))
		mixed := after(n.OutputValue(0))
		if len(scores) != 1 || len(mixed) != 1 {
			continue
		}
		if w, _ := weightOf(scores[0]); w != nil { // a router of experts, or the head of a classifier
			continue
		}
		a := attention{q: single(scores[0].Input(0)), k: single(scores[0].Input(1)),
			v: single(mixed[0].Node.Input(1 - mixed[0].Index))}
		if next := after(mixed[0].Node.OutputValue(0)); len(next) == 1 {
			a.o = next[0].Node
		}
		d.layers = append(d.layers, a)
	}
}

// single returns the only product that a value is computed from, if its factor is a weight.
func single(v *onnx.Value) *onnx.Node {
	list, _ := before(v)
	if len(list) != 1 {
		return nil
	}
	if w, _ := weightOf(list[0]); w == nil {
		return nil
	}
	return list[0]
}

// count computes the depths of all values.
func (d *decoder) count(g *onnx.Graph) {
	d.outputs = map[*onnx.Node]bool{}
	for _, a := range d.layers {
		if a.o != nil {
			d.outputs[a.o] = true
		}
	}
	for _, n := range g.Nodes {
		depth := 0
		for _, in := range n.Inputs {
			if in != nil {
				depth = max(depth, d.depth[in])
			}
		}
		if d.outputs[n] {
			depth++
		}
		for _, out := range n.Outputs {
			if out != nil {
				d.depth[out] = depth
			}
		}
	}
}

// nameAttentions names the attention weights. It returns false unless every layer is complete and occurs once.
func (d *decoder) nameAttentions() bool {
	seen := map[int]bool{}
	for _, a := range d.layers {
		if a.q == nil || a.k == nil || a.v == nil || a.o == nil || !isWeighted(a.o) {
			return false
		}
		layer := d.depth[a.q.OutputValue(0)]
		if seen[layer] || layer >= len(d.layers) {
			return false
		}
		seen[layer] = true
		parts := map[string]*onnx.Node{"q_proj": a.q, "k_proj": a.k, "v_proj": a.v, "o_proj": a.o}
		if a.q == a.k && a.k == a.v {
			parts = map[string]*onnx.Node{"qkv_proj": a.q, "o_proj": a.o}
		} else if a.q == a.k || a.k == a.v || a.q == a.v {
			return false
		}
		for name, n := range parts {
			d.name(n, layer, "self_attn."+name)
		}
	}
	return len(d.layers) > 0
}

func isWeighted(n *onnx.Node) bool {
	w, _ := weightOf(n)
	return w != nil
}

func (d *decoder) name(n *onnx.Node, layer int, module string) {
	w, _ := weightOf(n)
	d.found[w] = fmt.Sprintf("model.layers.%d.%s.weight", layer, module)
	d.attention[n] = true
}

// mlps finds the gated MLPs: a product whose data are an activated gate times an up projection.
func (d *decoder) mlps(g *onnx.Graph) {
	type mlp struct{ gate, up, down *onnx.Node }
	at := map[int]mlp{}
	parallel := false // parallel to the attention instead of after it
	for _, n := range g.Nodes {
		w, data := weightOf(n)
		if w == nil || d.attention[n] || data == nil || data.Producer == nil {
			continue
		}
		times := data.Producer
		for times != nil && (times.Is("Cast") || times.Is("Identity") || times.Is("Reshape")) && times.Input(0) != nil {
			times = times.Input(0).Producer
		}
		// gate and up are its inputs, in this order
		isFused := times != nil && times.Domain == fused.Domain && times.OpType == fused.GLUName
		if times == nil || !times.Is("Mul") && !isFused {
			continue
		}
		x, y := single(times.Input(0)), single(times.Input(1))
		_, xActivated := before(times.Input(0))
		_, yActivated := before(times.Input(1))
		if x == nil || y == nil || x == y || (xActivated == yActivated) != isFused || d.attention[x] || d.attention[y] {
			continue
		}
		if yActivated {
			x, y = y, x
		}
		layer := d.depth[n.OutputValue(0)]
		parallel = parallel || layer == 0
		if _, two := at[layer]; two {
			return
		}
		at[layer] = mlp{x, y, n}
	}
	for layer, p := range at {
		if !parallel {
			layer--
		}
		d.name(p.gate, layer, "mlp.gate_proj")
		d.name(p.up, layer, "mlp.up_proj")
		d.name(p.down, layer, "mlp.down_proj")
	}
}

// ends finds the token embedding, gathered by an input of the graph, and the head, whose product is an output.
func (d *decoder) ends(g *onnx.Graph) {
	for _, n := range g.Nodes {
		table := n.Input(0)
		if n.Is("Gather") && table.IsConstant() && len(table.Const.Dims) == 2 && table.Const.DataType.IsFloat() &&
			n.Input(1) != nil && n.Input(1).IsInput {
			if d.found[table] == "" {
				d.found[table] = "model.embed_tokens.weight"
			}
		}
	}
	for _, out := range g.Outputs {
		n := single(out)
		if n == nil || d.attention[n] || d.depth[n.OutputValue(0)] != len(d.layers) {
			continue
		}
		if w, _ := weightOf(n); d.found[w] == "" {
			d.found[w] = "lm_head.weight"
		}
	}
}
