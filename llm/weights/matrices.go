package weights

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/llm/weights/checkpoint"
	"github.com/mojo-patch/mojo-patch/llm/weights/gguf"
	"github.com/mojo-patch/mojo-patch/llm/weights/statistics"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// Matrix is a quantized matrix of a model: the initializers that a mojo.Linear or a mojo.Embedding reads.
type Matrix struct {
	Name string // of its codes, without their suffix
	// Format names its quantization format, empty if the model does not have it.
	Format string
	N, K   int64
	first  int64 // its first panel in Arrays
	merged bool  // Arrays also hold other matrices
	// Arrays are the initializers in the order of the ops' inputs, nil for those that the format does not use.
	Arrays []*onnx.Value
}

// Matrices lists the quantized matrices of a model, each once, in node order.
func Matrices(m *onnx.Model) []*Matrix {
	var list []*Matrix
	seen := map[*onnx.Value]bool{}
	for _, g := range m.Graphs() {
		for _, n := range g.Nodes {
			codes := n.Input(fused.LinearCodes)
			if n.Domain != fused.Domain || n.OpType != fused.LinearName && n.OpType != fused.EmbeddingName ||
				!codes.IsConstant() ||
				seen[codes] {
				continue
			}
			seen[codes] = true
			whole := Matrix{N: n.AttrInt(fused.AttrN, 0), K: n.AttrInt(fused.AttrK, 0)}
			for i := fused.LinearCodes; i <= fused.LinearSuperMinus; i++ {
				whole.Arrays = append(whole.Arrays, n.Input(i))
			}
			parts := []edit.MergedMatrix{{Codes: codes.Name, N: whole.N}}
			for _, e := range n.Metadata {
				switch e.Key {
				case edit.MetaFormat:
					whole.Format = e.Value
				case edit.MetaMatrices:
					var merged []edit.MergedMatrix
					if json.Unmarshal([]byte(e.Value), &merged) == nil && fill(merged, whole.N) {
						parts = merged
					}
				}
			}
			for _, part := range parts {
				x := whole
				x.merged = len(parts) > 1
				x.Name, x.N = strings.TrimSuffix(part.Codes, "_codes"), part.N
				whole.first += (part.N + blocks.PanelRows - 1) / blocks.PanelRows
				list = append(list, &x)
			}
		}
	}
	return list
}

// fill reports whether matrices have n rows in total and each except the last fills its panels.
func fill(list []edit.MergedMatrix, n int64) bool {
	for i, x := range list {
		if x.N <= 0 || x.N > n || i < len(list)-1 && x.N%blocks.PanelRows != 0 {
			return false
		}
		n -= x.N
	}
	return n == 0
}

// Len returns the number of elements.
func (x *Matrix) Len() int64 { return x.N * x.K }

// Size returns the number of bytes that the matrix takes in the arrays.
func (x *Matrix) Size() (n int64) {
	for _, v := range x.Arrays {
		if v != nil && v.Const != nil && len(v.Const.Dims) > 0 && v.Const.Dims[0] > 0 {
			n += v.Const.Size() / v.Const.Dims[0] * x.panels()
		}
	}
	return n
}

func (x *Matrix) panels() int64 { return (x.N + blocks.PanelRows - 1) / blocks.PanelRows }

// Statistics describes the elements. It returns an error if Elements does.
func (x *Matrix) Statistics() (*statistics.Statistics, error) {
	read, err := x.Elements()
	if err != nil {
		return nil, err
	}
	return statistics.Read(x.Len(), read)
}

// Elements returns a function that reads the elements from first on, row by row. It returns an error if the format is
// unknown or the arrays do not fit it.
func (x *Matrix) Elements() (func(dst []float32, first int64) error, error) {
	panels := panelsOf(x.Format)
	if panels == nil {
		return nil, fmt.Errorf("matrix %q: the model does not say how it was quantized (%s is %q)", x.Name,
			edit.MetaFormat, x.Format)
	}
	if most := int64(math.MaxInt32); x.N <= 0 || x.K <= 0 || x.N > most || x.K > most {
		return nil, fmt.Errorf("matrix %q: it has %d rows of %d elements", x.Name, x.N, x.K)
	}
	arrays := make([][]byte, len(x.Arrays))
	var sizes [5]int64
	sizes[0], sizes[1], sizes[2], sizes[3], sizes[4] = panels.Sizes(x.K)
	for i, v := range x.Arrays {
		if v != nil && v.Const != nil {
			var err error
			if arrays[i], err = v.Const.Bytes(); err != nil {
				return nil, err
			}
		}
		from, to := x.first*sizes[i], (x.first+x.panels())*sizes[i]
		if int64(len(arrays[i])) < to || !x.merged && int64(len(arrays[i])) != to {
			return nil, fmt.Errorf("matrix %q: %d rows of %d elements of %s take %d bytes in array %d, but it has %d",
				x.Name, x.N, x.K, x.Format, to-from, i, int64(len(arrays[i]))-from)
		}
		arrays[i] = arrays[i][from:]
	}
	row, at := make([]float32, x.K), int64(-1)
	return func(dst []float32, first int64) error {
		for len(dst) > 0 {
			if r := first / x.K; r != at {
				at = r
				part := func(i int) []byte { return arrays[i][r/blocks.PanelRows*sizes[i]:][:sizes[i]] }
				panels.Decode(row, &blocks.Panel{Codes: part(0), Scale: part(1), Minus: part(2), SuperScale: part(3),
					SuperMinus: part(4)}, int(r%blocks.PanelRows))
			}
			n := copy(dst, row[first%x.K:])
			dst, first = dst[n:], first+int64(n)
		}
		return nil
	}, nil
}

// panelsOf returns the layout of a format by its name in a model, nil for others.
func panelsOf(format string) *blocks.Panels {
	if format == strings.ToLower(checkpoint.TypeFP8) {
		return blocks.FP8Block.Panels()
	}
	if t, ok := gguf.Lookup(strings.ToUpper(format)); ok {
		return t.Format().Panels()
	}
	return nil
}
