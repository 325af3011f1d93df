package generate

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
	"github.com/x448/float16"
)

// window is the part of every sequence that a run computes: rows sequences with past slots in the cache, and fresh new
// ones. The first left[row] slots of a row, and the slots from end[row] on, are padding.
type window struct {
	rows, past, fresh int
	ids               []int64 // [rows, fresh]
	left, end         []int
	starts            []int           // slots in the cache of each row; past is their maximum
	masksNew          func(port) bool // whether a mask has columns only for the new tokens; nil: never
	// room is the number of slots of a mask that covers whole buffers. 0: the tokens determine the mask's length.
	room int
}

func (w *window) total() int { return w.past + w.fresh }

// attended reports whether the slot of a row holds a token.
func (w *window) attended(row, slot int) bool { return slot >= w.left[row] && slot < w.end[row] }

// position returns the index of a slot among the tokens of its row.
func (w *window) position(row, slot int) int64 { return int64(max(0, slot-w.left[row])) }

// tensor makes the values of an input other than the cache. It returns an error for a shape that it does not know.
func (w *window) tensor(p port) (*onnx.Tensor, error) {
	switch p.role {
	case roles.Index, roles.Other:
		return w.tokens(p)
	case roles.Position:
		return w.positions(p)
	case roles.Mask:
		return w.mask(p)
	case roles.Total:
		return w.scalar(p, int64(w.total()))
	case roles.Last:
		return w.scalar(p, int64(w.total()-1))
	case roles.PastLength:
		return values(p, w.numbers(p), func(i int) int64 { return int64(w.starts[min(i, w.rows-1)]) })
	case roles.LogitsToKeep:
		return w.scalar(p, 1)
	case roles.CacheFlag:
		flag := int64(0)
		if w.past > 0 {
			flag = 1
		}
		return w.scalar(p, flag)
	}
	return nil, fmt.Errorf("cannot tell the purpose of input %s", p)
}

// values makes a tensor from the number that at returns for each element.
func values(p port, dims []int64, at func(i int) int64) (*onnx.Tensor, error) {
	t := &onnx.Tensor{DataType: p.dataType, Dims: dims}
	size, n := t.Size(), int(t.Len())
	if size < 0 || p.dataType.Bits() < 8 {
		return nil, fmt.Errorf("input %s cannot be %v", p, dims)
	}
	b := make([]byte, size)
	le := binary.LittleEndian
	switch p.dataType {
	case onnx.Int64, onnx.Uint64:
		for i := range n {
			le.PutUint64(b[8*i:], uint64(at(i)))
		}
	case onnx.Int32, onnx.Uint32:
		for i := range n {
			le.PutUint32(b[4*i:], uint32(at(i)))
		}
	case onnx.Bool, onnx.Int8, onnx.Uint8:
		for i := range n {
			b[i] = byte(at(i))
		}
	case onnx.Int16, onnx.Uint16:
		for i := range n {
			le.PutUint16(b[2*i:], uint16(at(i)))
		}
	case onnx.Float:
		for i := range n {
			le.PutUint32(b[4*i:], math.Float32bits(float32(at(i))))
		}
	case onnx.Double:
		for i := range n {
			le.PutUint64(b[8*i:], math.Float64bits(float64(at(i))))
		}
	case onnx.Float16:
		for i := range n {
			le.PutUint16(b[2*i:], float16.Fromfloat32(float32(at(i))).Bits())
		}
	case onnx.BFloat16:
		for i := range n {
			le.PutUint16(b[2*i:], uint16(math.Float32bits(float32(at(i)))>>16))
		}
	default:
		return nil, fmt.Errorf("input %s has an unsupported type", p)
	}
	return onnx.NewTensor(p.name, p.dataType, dims, b)
}

func (w *window) tokens(p port) (*onnx.Tensor, error) {
	dims := []int64{int64(w.rows), int64(w.fresh)}
	if len(p.dims) == 1 {
		dims = dims[1:]
	}
	if typeInput(p) {
		return values(p, dims, func(int) int64 { return 0 })
	}
	return values(p, dims, func(i int) int64 { return w.ids[i] })
}

func typeInput(p port) bool { return roles.NameHas(p.name, "token_type", "segment_id") }

// positions returns the positions of the tokens in their rows, or the slots if all rows share one list.
func (w *window) positions(p port) (*onnx.Tensor, error) {
	fresh := int64(w.fresh)
	slot := func(i int) int64 { return int64(w.past + i%w.fresh) }
	switch rank := len(p.dims); {
	case rank == 0:
		return values(p, nil, func(int) int64 { return int64(w.past) })
	case rank == 1:
		return values(p, []int64{fresh}, slot)
	case rank == 2 && p.dims[0].Value == 1 && w.rows > 1:
		return values(p, []int64{1, fresh}, slot)
	case rank == 2:
		return values(p, []int64{int64(w.rows), fresh}, w.at)
	// the same positions for each section of a rotary embedding, as in multimodal models
	case rank == 3 && p.dims[0].Value > 0:
		n := w.rows * w.fresh
		return values(p, []int64{p.dims[0].Value, int64(w.rows), fresh}, func(i int) int64 { return w.at(i % n) })
	}
	return nil, fmt.Errorf("positions must have the shape [batch, sequence], but the model has %s", p)
}

// at returns the position of element i of [rows, fresh].
func (w *window) at(i int) int64 { return w.position(i/w.fresh, w.starts[i/w.fresh]+i%w.fresh) }

// mask is 1 for slots that hold tokens. A mask with an axis for the new tokens is also causal. A mask of floats is
// added to the scores.
func (w *window) mask(p port) (*onnx.Tensor, error) {
	rank := len(p.dims)
	if rank != 2 && rank != 3 && rank != 4 {
		return nil, fmt.Errorf("the mask must have the shape [batch, total], but the model has %s", p)
	}
	if w.masksNew != nil && w.masksNew(p) {
		return values(p, []int64{int64(w.rows), int64(w.fresh)}, func(i int) int64 {
			row := i / w.fresh
			return bit(w.attended(row, w.starts[row]+i%w.fresh))
		})
	}
	total := int64(max(w.total(), w.room))
	if d := p.dims[rank-1]; d.Value > 0 {
		total = d.Value
	}
	dims := []int64{int64(w.rows), total}
	if rank == 2 {
		return values(p, dims, func(i int) int64 { return bit(w.attended(i/int(total), i%int(total))) })
	}
	queries, heads := w.fresh, 1
	if d := p.dims[rank-2]; d.Value == 1 {
		queries = 1
	}
	dims = []int64{int64(w.rows), int64(queries), total}
	if rank == 4 {
		heads = max(1, int(p.dims[1].Value))
		dims = []int64{int64(w.rows), int64(heads), int64(queries), total}
	}
	t, err := values(p, dims, func(i int) int64 {
		slot, rest := i%int(total), i/int(total)
		query, row := rest%queries, rest/queries/heads
		seen := w.attended(row, slot) && (queries == 1 && w.fresh > 1 || slot <= w.starts[row]+query)
		if p.dataType.IsFloat() {
			return bit(!seen) * excluded(p.dataType)
		}
		return bit(seen)
	})
	return t, err
}

// excluded is added to scores that must not count: far below any score, but finite, so that rows of padding stay
// numbers.
func excluded(t onnx.DataType) int64 {
	if t == onnx.Float16 {
		return -65504
	}
	return -1e9
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// scalar makes a tensor of one number, or of one per row.
func (w *window) scalar(p port, v int64) (*onnx.Tensor, error) {
	return values(p, w.numbers(p), func(int) int64 { return v })
}

// numbers returns the shape of an input that holds one number, or one per row.
func (w *window) numbers(p port) []int64 {
	dims := make([]int64, len(p.dims))
	for i, d := range p.dims {
		switch {
		case d.Value >= 0:
			dims[i] = d.Value
		case i == 0:
			dims[i] = int64(w.rows)
		default:
			dims[i] = 1
		}
	}
	return dims
}
