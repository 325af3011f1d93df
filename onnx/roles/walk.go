package roles

import "github.com/mojo-patch/mojo-patch/onnx"

// scope maps the inputs of a function's body to the values of the call.
type scope struct {
	arguments map[*onnx.Value]*onnx.Value
	caller    *scope
	depth     int
}

// walker follows an input to the nodes that determine its role.
type walker struct {
	model *onnx.Model
	in    *Input
	seen  map[*onnx.Value]bool
	found Role
}

// passThrough are ops whose output has elements of input 0.
var passThrough = onnx.Words("Cast Identity Reshape Squeeze Unsqueeze Flatten Expand Transpose Slice Tile")

// pagedRoles are the roles of the inputs of PagedAttention behind its pools.
var pagedRoles = map[int]Role{pastLengthInput - 1: Cumulative, pastLengthInput: PastLength,
	pastLengthInput + 1: BlockTable}

const maxCallDepth = 8

func (w *walker) follow(v *onnx.Value, s *scope) {
	if w.seen[v] {
		return
	}
	w.seen[v] = true
	for _, u := range v.Uses() {
		n := u.Node
		if role, _ := written(u); role != Other {
			w.found = role
			continue
		}
		switch {
		case onnx.IsStandardDomain(n.Domain) && passThrough[n.OpType] && u.Index == 0:
			if o := n.OutputValue(0); o != nil {
				w.follow(o, s)
			}
		case (n.Is("Gather") || n.Is("GatherElements")) && u.Index == 1:
			w.table(n.Input(0), n.AttrInt("axis", 0), s)
		case n.OpType == "GatherBlockQuantized" && u.Index == 1:
			w.table(n.Input(0), n.AttrInt("gather_axis", 0), s)
		case n.Domain == "mojo" && n.OpType == "Embedding" && u.Index == 0:
			w.note([]onnx.Dim{{Value: n.AttrInt("n", 0)}}, 0)
		case n.OpType == "GroupQueryAttention" && u.Index == 5:
			w.found = Last
		case n.OpType == "GroupQueryAttention" && u.Index == 6:
			w.found = Total
		case isPaged(n) && pagedRoles[u.Index] != Other:
			w.found = pagedRoles[u.Index]
		case firstPast(n) > 0 && u.Index == pastLengthInput:
			w.found = PastLength
		default:
			w.call(n, u.Index, s)
		}
	}
}

// call follows input i of a call of a model-local function into its body.
func (w *walker) call(n *onnx.Node, i int, s *scope) {
	f := w.model.Function(n.Domain, n.OpType, n.Overload)
	if f == nil || i >= len(f.Body.Inputs) || s != nil && s.depth >= maxCallDepth {
		return
	}
	inner := &scope{arguments: map[*onnx.Value]*onnx.Value{}, caller: s}
	if s != nil {
		inner.depth = s.depth + 1
	}
	for k, p := range f.Body.Inputs {
		inner.arguments[p] = n.Input(k)
	}
	w.follow(f.Body.Inputs[i], inner)
}

// table records the size of the axis of data that the input indexes, if it is known.
func (w *walker) table(data *onnx.Value, axis int64, s *scope) {
	for data != nil {
		if arg, ok := s.argument(data); ok {
			data, s = arg, s.caller
			continue
		}
		if t := data.Constant(); t != nil {
			var dims []onnx.Dim
			for _, d := range t.Dims {
				dims = append(dims, onnx.Dim{Value: d})
			}
			w.note(dims, axis)
			return
		}
		if t, ok := data.Type(); ok && t.HasShape {
			w.note(t.Dims, axis)
			return
		}
		n := data.Producer
		if n == nil || !n.Is("Cast") && !n.Is("Identity") && !n.Is("DequantizeLinear") {
			return
		}
		data = n.Input(0)
	}
}

func (s *scope) argument(v *onnx.Value) (*onnx.Value, bool) {
	if s == nil {
		return nil, false
	}
	arg, ok := s.arguments[v]
	return arg, ok
}

func (w *walker) note(dims []onnx.Dim, axis int64) {
	if axis < 0 {
		axis += int64(len(dims))
	}
	if axis >= 0 && axis < int64(len(dims)) {
		w.in.Tables = append(w.in.Tables, Number(dims[axis]))
	}
}
