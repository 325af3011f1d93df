package weights

import (
	"cmp"
	"slices"
	"strings"
	"unsafe"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// StripOptions say what Strip takes out.
type StripOptions struct {
	// Location is the file that the references name; it has to be absent where the graph is written.
	Location string
	// Over is the number of bytes up to which an initializer stays in the graph.
	Over int64
	// All takes out every initializer of floating-point or 8-bit numbers, not the parameters of modules alone.
	All bool
}

// StripReport says what Strip did.
type StripReport struct {
	Schema   int          `json:"schema"`
	Model    string       `json:"model"`
	Output   string       `json:"output"`
	Location string       `json:"location"`
	Stripped []Stripped   `json:"stripped"`
	Kept     []KeptTensor `json:"kept"` // over the size, and no parameters
	// Bytes counts the elements that were taken out, shared ones once.
	Bytes  int64 `json:"bytes"`
	Before int64 `json:"bytes_before"` // of the model's files
	After  int64 `json:"bytes_after"`
}

// Stripped is an initializer that was replaced by a reference.
type Stripped struct {
	Name     string  `json:"name"`
	DataType string  `json:"dtype"`
	Shape    []int64 `json:"shape"`
	Offset   int64   `json:"offset"`
	Length   int64   `json:"length"`
	Tied     string  `json:"tied_to,omitempty"` // another one with the same elements, at the same place
}

// KeptTensor is a large initializer that stays.
type KeptTensor struct {
	Name     string  `json:"name"`
	DataType string  `json:"dtype"`
	Shape    []int64 `json:"shape"`
	Length   int64   `json:"length"`
}

// Strip replaces the weights of a model by references to external data that are absent: the initializers over a size
// that are parameters of modules (their names, or the nodes that read them, say so). Integers that may be shapes,
// positions or tables stay, and so do constants that an exporter computed, which no checkpoint has. Initializers with
// the same elements refer to one place.
func Strip(m *onnx.Model, o StripOptions) (*StripReport, error) {
	r := &StripReport{Schema: Schema, Location: o.Location, Stripped: []Stripped{}, Kept: []KeptTensor{}}
	roles := roles(m)
	places, c := map[shared]int{}, new(edit.Change) // places in r.Stripped
	for _, g := range m.Graphs() {
		for _, v := range g.Initializers() {
			t := v.Const
			if t.DataType == onnx.String {
				continue
			}
			b, err := t.Bytes()
			if err != nil {
				return nil, err
			}
			large := t.Size() > o.Over && isWeight(t.DataType)
			if !large || !o.All && !isParameter(v) && roles[v] == "" {
				if large {
					r.Kept = append(r.Kept, KeptTensor{v.Name, t.DataType.String(), shape(t.Dims), t.Size()})
				}
				if t.External != nil { // what stays is in the graph's file
					own, err := onnx.NewTensor(t.Name, t.DataType, t.Dims, b)
					if err != nil {
						return nil, err
					}
					c.SetConst(v, own)
				}
				continue
			}
			s := Stripped{Name: v.Name, DataType: t.DataType.String(), Shape: shape(t.Dims), Offset: r.Bytes,
				Length: t.Size()}
			key := shared{unsafe.SliceData(b), s.Length}
			if i, tied := places[key]; tied {
				s.Offset, s.Tied = r.Stripped[i].Offset, r.Stripped[i].Name
			} else {
				places[key] = len(r.Stripped)
				r.Bytes += s.Length
			}
			ref, err := onnx.NewReference(v.Name, t.DataType, t.Dims,
				onnx.External{Location: o.Location, Offset: s.Offset, Length: s.Length})
			if err != nil {
				return nil, err
			}
			c.SetConst(v, ref)
			r.Stripped = append(r.Stripped, s)
		}
	}
	slices.SortFunc(r.Kept, func(a, b KeptTensor) int { return cmp.Compare(b.Length, a.Length) })
	return r, nil
}

// shared is the place in memory of the elements of tied initializers.
type shared struct {
	first  *byte
	length int64
}

// isWeight leaves out the types of shapes, positions and masks.
func isWeight(t onnx.DataType) bool {
	switch t {
	case onnx.Int64, onnx.Int32, onnx.Int16, onnx.Uint64, onnx.Uint32, onnx.Uint16, onnx.Bool, onnx.String:
		return false
	}
	return true
}

// isParameter reports whether an initializer is a parameter of a module, which checkpoints have: it is called one, or
// stands where one stands and its node says of which module.
func isParameter(v *onnx.Value) bool {
	if strings.HasSuffix(v.Name, ".weight") || strings.HasSuffix(v.Name, ".bias") ||
		len(v.Const.Dims) >= 3 && strings.Contains(v.Name, ".experts.") {
		return true
	}
	if strings.Contains(v.Name, ".") && !strings.HasPrefix(v.Name, "/") { // another name of PyTorch: a buffer
		return false
	}
	for _, u := range readers(v) {
		named := scope(u.Node) != "" || namespace(u.Node) != "" || path(u.Node) != ""
		// a table that is gathered has kept its name, if it is a parameter
		if named && !u.Node.Is("Gather") && (roleOf(v, u) != "" || len(v.Const.Dims) == 3) {
			return true
		}
	}
	return false
}
