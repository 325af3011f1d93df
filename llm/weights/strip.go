package weights

import (
	"cmp"
	"slices"
	"unsafe"

	"github.com/mojo-patch/mojo-patch/llm/weights/parameters"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// StripOptions are the options of Strip.
type StripOptions struct {
	// Location is the file that the references name. It must not exist where the graph is written.
	Location string
	// Over is the size in bytes up to which an initializer stays in the graph.
	Over int64
	// All removes every initializer of floating-point or 8-bit numbers, not only the parameters of modules.
	All bool
}

// StripReport is the result of Strip.
type StripReport struct {
	Schema   int          `json:"schema"`
	Model    string       `json:"model"`
	Output   string       `json:"output"`
	Location string       `json:"location"`
	Stripped []Stripped   `json:"stripped"`
	Kept     []KeptTensor `json:"kept"` // over the size, but not parameters
	// Bytes counts the removed elements, shared ones once.
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
	Tied     string  `json:"tied_to,omitempty"` // another initializer with the same elements at the same place
}

// KeptTensor is a large initializer that stays.
type KeptTensor struct {
	Name     string  `json:"name"`
	DataType string  `json:"dtype"`
	Shape    []int64 `json:"shape"`
	Length   int64   `json:"length"`
}

// Strip replaces the weights of a model by references to missing external data. These are the initializers over a size
// whose names or readers identify them as parameters of modules. Integers that may be shapes, positions or tables stay,
// and so do constants that an exporter computed, which no checkpoint has. Initializers with the same elements refer to
// one place.
func Strip(m *onnx.Model, o StripOptions) (*StripReport, error) {
	r := &StripReport{Schema: Schema, Location: o.Location, Stripped: []Stripped{}, Kept: []KeptTensor{}}
	roles := parameters.Roles(m)
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
			if !large || !o.All && !parameters.IsParameter(v) && roles[v] == "" {
				if large {
					r.Kept = append(r.Kept, KeptTensor{v.Name, t.DataType.String(), shape(t.Dims), t.Size()})
				}
				if t.External != nil { // the rest is stored in the graph's file
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

// shared is the memory address of the elements of tied initializers.
type shared struct {
	first  *byte
	length int64
}

// isWeight excludes the types of shapes, positions and masks.
func isWeight(t onnx.DataType) bool {
	switch t {
	case onnx.Int64, onnx.Int32, onnx.Int16, onnx.Uint64, onnx.Uint32, onnx.Uint16, onnx.Bool, onnx.String:
		return false
	}
	return true
}
