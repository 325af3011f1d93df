package weights

import (
	"cmp"
	"slices"

	"github.com/mojo-patch/mojo-patch/rewrite/streams"
)

// Schema is the version of the JSON form of Report.
const Schema = 1

// Report is the result of loading weights.
type Report struct {
	Schema  int      `json:"schema"`
	Graph   string   `json:"graph"`
	Files   []string `json:"files"`
	Map     string   `json:"map,omitempty"`
	DType   string   `json:"dtype,omitempty"`  // the type that graph and weights were converted to: fp32, fp16 or bf16
	Output  string   `json:"output,omitempty"` // empty if nothing was written
	Written bool     `json:"written"`
	// Expected counts the initializers without elements (with Replace also the replaced ones). Loaded counts those that
	// have elements now. A tensor of another shape counts as missing.
	Expected   int             `json:"total_expected_keys"`
	Loaded     int             `json:"successfully_loaded"`
	Missing    []MissingKey    `json:"missing_keys"`
	Unexpected []UnexpectedKey `json:"unexpected_keys"`
	// Present are initializers that have a tensor in the checkpoint but already had elements, which they keep.
	Present []PresentKey `json:"present_keys"`
	Keys    []LoadedKey  `json:"loaded_keys"`
	// UnusedMap are entries of the map for initializers that the graph lacks.
	UnusedMap []string `json:"unused_map_entries"`
	Elements  int64    `json:"elements"`
	Bytes     int64    `json:"bytes"`
	// Quantized lists the formats of the keys that kept the checkpoint's format, Widened the keys that did not. Both
	// are absent unless keeping was requested.
	Quantized []QuantizedFormat `json:"quantized,omitempty"`
	Widened   []WidenedKey      `json:"widened,omitempty"`
	Check     *QuantizedCheck   `json:"check,omitempty"`
	// Safe reports how the model was kept from overflowing in float16; absent unless requested.
	Safe *streams.SafeReport `json:"safe,omitempty"`
}

// QuantizedFormat summarizes the matrices of one format. A matrix that several keys share counts once.
type QuantizedFormat struct {
	Format   string `json:"format"`
	Matrices int    `json:"matrices"`
	Elements int64  `json:"elements"`
	// File is their size in the checkpoint, Bytes in the model, Float in float32.
	File  int64   `json:"file_bytes"`
	Bytes int64   `json:"bytes"`
	Float int64   `json:"float32_bytes"`
	Bits  float64 `json:"bits_per_weight"`
}

// WidenedKey is a key that does not stay quantized, and why.
type WidenedKey struct {
	Name   string `json:"name"`
	Tensor string `json:"tensor"`
	Type   string `json:"type"`
	Bytes  int64  `json:"bytes"` // in the model
	Reason string `json:"reason"`
	// Refused reports that its tensor is quantized and the model cannot read it in that form.
	Refused bool `json:"refused,omitempty"`
}

// QuantizedCheck has the worst results over all kinds of sites, relative to the greatest magnitude: the difference of
// the op with exact activations from the product of floats, and of its kernel from its definition.
type QuantizedCheck struct {
	Activations string  `json:"activations"`
	Kinds       int     `json:"kinds"`
	Structural  float64 `json:"structural_max_rel"`
	Definition  float64 `json:"max_rel"`
	Kernels     int     `json:"kernels"`
	Kernel      float64 `json:"kernel_max_rel"`
}

// MissingKey is an initializer without elements. Tensor and Found name a tensor of another shape, if one was found.
type MissingKey struct {
	Name     string  `json:"name"`
	DataType string  `json:"dtype"`
	Shape    []int64 `json:"shape"`
	Tensor   string  `json:"tensor,omitempty"`
	Found    []int64 `json:"found_shape,omitempty"`
	Reason   string  `json:"reason,omitempty"`
}

// UnexpectedKey is a tensor of the checkpoint that the graph does not use.
type UnexpectedKey struct {
	Name  string  `json:"name"`
	Type  string  `json:"type"`
	Shape []int64 `json:"shape"`
	File  string  `json:"file"`
}

// PresentKey is an initializer that already had elements. Equal is absent if they were too many to compare.
type PresentKey struct {
	Name   string `json:"name"`
	Tensor string `json:"tensor"`
	Equal  *bool  `json:"equal,omitempty"`
}

// LoadedKey is an initializer with its source.
type LoadedKey struct {
	Name    string   `json:"name"`
	Tensors []string `json:"tensors"`
	Types   []string `json:"types"` // of the tensors, each once
	Rule    Rule     `json:"rule"`
	Shape   []int64  `json:"shape"`
	// DataType is the initializer's type. If the tensors' type differs, the elements were cast.
	DataType string `json:"dtype"`
	Cast     bool   `json:"cast"`
	// Transposed reports that the last two axes were swapped.
	Transposed bool `json:"transposed"`
	// RopeHeads is the number of heads whose rows were restored to PyTorch's order.
	RopeHeads int64 `json:"rope_unpermute_heads,omitempty"`
	// QKVHeads is the number of heads whose rows of q, k and v were regrouped per head.
	QKVHeads int64   `json:"qkv_ungroup_heads,omitempty"`
	Added    float32 `json:"added,omitempty"`
	// Tied names another initializer that shares these elements.
	Tied string `json:"tied_to,omitempty"`
	// Overflows counts the finite elements that the cast made infinite.
	Overflows int64 `json:"overflows,omitempty"`
	// Quantized reports that the key keeps the checkpoint's format, which DataType names.
	Quantized bool `json:"quantized,omitempty"`
}

// Report describes the plan and, after the model is written, the results.
func (p *Plan) Report() *Report {
	r := &Report{Schema: Schema, Files: p.c.Files, Missing: append([]MissingKey{}, p.missing...),
		Unexpected: []UnexpectedKey{},
		Present:    []PresentKey{}, Keys: []LoadedKey{}, UnusedMap: append([]string{}, p.unusedMap...)}
	for _, t := range p.unexpected {
		r.Unexpected = append(r.Unexpected, UnexpectedKey{t.Name, t.Type, shape(t.Dims), t.Path})
	}
	for _, a := range p.assignments {
		if a.present {
			r.Present = append(r.Present, PresentKey{a.value.Name, a.tensors[0].Name, a.equal})
			continue
		}
		k := a.describe()
		if p.execution != nil {
			k.Overflows = p.execution.written[a]
		}
		r.Keys = append(r.Keys, k)
		if a.kept == nil && a.half == nil && p.check != nil && a.why != nil {
			r.Widened = append(r.Widened, WidenedKey{k.Name, k.Tensors[0], a.tensors[0].Type, a.value.Const.Size(),
				a.why.Error(), a.tensors[0].Panels != nil})
		}
		if a.kept == nil && a.half == nil && a.tied == nil {
			r.Elements += a.value.Const.Len()
			r.Bytes += a.value.Const.Size()
		}
	}
	r.quantized(p)
	slices.SortFunc(r.Present, func(a, b PresentKey) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(r.Keys, func(a, b LoadedKey) int { return cmp.Compare(a.Name, b.Name) })
	r.Loaded = len(r.Keys)
	r.Expected = r.Loaded + len(r.Missing)
	return r
}

// quantized adds the keys that stayed quantized.
func (r *Report) quantized(p *Plan) {
	if r.Check = p.check; p.check == nil {
		return
	}
	slices.SortFunc(r.Widened, func(a, b WidenedKey) int { return cmp.Compare(a.Name, b.Name) })
	seen := map[*matrixRows]bool{}
	for _, a := range p.assignments {
		m := a.kept
		if m == nil || seen[m] {
			continue
		}
		seen[m] = true
		q := m.matrix
		i := slices.IndexFunc(r.Quantized, func(f QuantizedFormat) bool { return f.Format == q.Format })
		if i < 0 {
			i = len(r.Quantized)
			r.Quantized = append(r.Quantized, QuantizedFormat{Format: q.Format})
		}
		f := &r.Quantized[i]
		f.Matrices++
		f.Elements += m.n * m.k
		f.File += m.fileSize()
		f.Bytes += q.Size()
		f.Float += 4 * m.n * m.k
		f.Bits = 8 * float64(f.Bytes) / float64(f.Elements)
		r.Elements += m.n * m.k
		r.Bytes += q.Size()
	}
	r.halves(p)
	slices.SortFunc(r.Quantized, func(a, b QuantizedFormat) int { return cmp.Compare(a.Format, b.Format) })
}

func (a *assignment) describe() LoadedKey {
	t := a.value.Const
	k := LoadedKey{Name: a.value.Name, Rule: a.rule, Shape: shape(t.Dims), DataType: t.DataType.String(),
		Added: a.recipe.add, QKVHeads: a.recipe.qkvHeads}
	for _, s := range a.tensors {
		k.Tensors = append(k.Tensors, s.Name)
		if !slices.Contains(k.Types, s.Type) {
			k.Types = append(k.Types, s.Type)
		}
		k.Cast = k.Cast || s.DataType != t.DataType
	}
	for _, b := range a.recipe.blocks {
		k.Transposed = k.Transposed || b.transposed
		for _, p := range b.pieces {
			k.RopeHeads = max(k.RopeHeads, p.heads)
		}
	}
	if a.tied != nil {
		k.Tied = a.tied.value.Name
	}
	if a.kept != nil {
		k.DataType, k.Cast, k.Transposed, k.Quantized = a.kept.matrix.Format, false, false, true
	}
	return k
}

// Mismatched lists the missing keys for which a tensor of another shape was found.
func (r *Report) Mismatched() []MissingKey {
	var list []MissingKey
	for _, k := range r.Missing {
		if k.Tensor != "" {
			list = append(list, k)
		}
	}
	return list
}
