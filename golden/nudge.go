package golden

import (
	"encoding/binary"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// Nudged returns a tensor of floats with each element moved by one unit in its last place, up or down at random by
// seed. Zeros, infinities, NaN and tensors of other types do not change. The elements are computed when read.
func Nudged(t *onnx.Tensor, seed uint64) (*onnx.Tensor, error) {
	if !t.DataType.IsFloat() {
		return t, nil
	}
	nudge := nudges[t.DataType]
	return onnx.NewComputed(t.Name, t.DataType, t.Dims, func(dst []byte, first int64) error {
		if err := t.ReadElements(dst, first); err != nil {
			return err
		}
		width := t.DataType.Bits() / 8
		for i := 0; i < len(dst); i += width {
			nudge(dst[i:], scramble(seed, uint64(first)+uint64(i/width))&1 == 0)
		}
		return nil
	})
}

// Nudge moves the weights of a model by one unit in the last place (Nudged): its initializers and Constant nodes of
// more than one element. Single numbers stay: they are epsilons, exponents and bounds.
func Nudge(m *onnx.Model, seed uint64) error {
	nudge := func(t *onnx.Tensor) (*onnx.Tensor, error) {
		if seed++; t.Len() < 2 {
			return t, nil
		}
		return Nudged(t, seed)
	}
	c := new(edit.Change)
	for _, g := range m.Graphs() {
		for _, v := range g.Initializers() {
			t, err := nudge(v.Const)
			if err != nil {
				return err
			}
			c.SetConst(v, t)
		}
		for _, n := range g.Nodes {
			if a := n.Attr("value"); n.Is("Constant") && a != nil && a.Tensor != nil && a.Tensor.DataType.IsFloat() {
				t, err := nudge(a.Tensor)
				if err != nil {
					return err
				}
				c.SetAttr(n, onnx.TensorAttr("value", t))
			}
		}
	}
	return nil
}

// nudges move the first element of b to the next number of its type.
var nudges = map[onnx.DataType]func(b []byte, up bool){
	onnx.Float16: func(b []byte, up bool) {
		binary.LittleEndian.PutUint16(b, uint16(next(uint64(binary.LittleEndian.Uint16(b)), 16, 10, up)))
	},
	onnx.BFloat16: func(b []byte, up bool) {
		binary.LittleEndian.PutUint16(b, uint16(next(uint64(binary.LittleEndian.Uint16(b)), 16, 7, up)))
	},
	onnx.Float: func(b []byte, up bool) {
		binary.LittleEndian.PutUint32(b, uint32(next(uint64(binary.LittleEndian.Uint32(b)), 32, 23, up)))
	},
	onnx.Double: func(b []byte, up bool) {
		binary.LittleEndian.PutUint64(b, next(binary.LittleEndian.Uint64(b), 64, 52, up))
	},
}

// next returns the bits of the neighbor of a number, of greater magnitude or not, in a format with this many bits and
// digits after the point.
func next(number uint64, bits, digits int, up bool) uint64 {
	magnitude := number & (1<<(bits-1) - 1)
	infinity := uint64(1)<<(bits-1) - uint64(1)<<digits
	switch {
	case magnitude == 0 || magnitude >= infinity || up && magnitude+1 == infinity:
		return number
	case up:
		return number + 1
	}
	return number - 1
}

// scramble returns a random number for a seed and a position (SplitMix64).
func scramble(seed, i uint64) uint64 {
	z := seed*0xd1342543de82ef95 + (i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
