package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Some safetensors files store quantized weights as two tensors, codes and scales. Each such pair becomes one tensor of
// blocks here, whose rows are assembled on demand:
//
//   - DeepSeek's FP8: X of float8e4m3fn, [.., N, K], and X_scale_inv of float32, [.., N/128, K/128] rounded up, the
//     factors of the elements.
//   - gpt-oss's MXFP4: X_blocks of bytes, [.., N, K/32, 16], and X_scales of bytes, [.., N, K/32].

// The names of the types.
const (
	TypeFP8   = "FP8-BLOCK"
	typeMXFP4 = "MXFP4"
)

// fp8Block is the number of rows, and of columns, that share a scale.
const fp8Block = 128

// pair merges each pair into one tensor.
func (c *Checkpoint) pair() {
	paired := map[*Tensor]*Tensor{} // the merged tensor by its codes; nil for scales
	for _, codes := range c.Tensors {
		if codes.Arch != nil {
			continue
		}
		var t *Tensor
		var scales *Tensor
		if name, ok := strings.CutSuffix(codes.Name, "_blocks"); ok && codes.DataType == onnx.Uint8 {
			if scales = c.byName[name+"_scales"]; scales != nil && c.byName[name] == nil {
				t = mxfp4(name, codes, scales)
			}
		} else if codes.DataType == onnx.Float8E4M3FN {
			if scales = c.byName[codes.Name+"_scale_inv"]; scales != nil {
				t = fp8(codes, scales)
			} else if s := c.byName[codes.Name+"_scale"]; s != nil {
				codes.Broken = fmt.Errorf("%s: tensor %q is scaled by %q, %s %v, in an unsupported way: scales of "+
					"128 x 128 elements (%s_scale_inv) are "+
					"supported", codes.Path, codes.Name, s.Name, s.Type, s.Dims, codes.Name)
			}
		}
		if t != nil {
			paired[codes], paired[scales] = t, nil
		}
	}
	if len(paired) == 0 {
		return
	}
	list := c.Tensors
	c.Tensors = nil
	for _, t := range list {
		made, part := paired[t]
		if part {
			delete(c.byName, t.Name)
		}
		if made == nil && part {
			continue
		}
		if made != nil {
			t = made
		}
		c.byName[t.Name] = t
		c.Tensors = append(c.Tensors, t)
	}
}

// scaled returns a tensor of codes and scales. row assembles its rows, and the elements are decoded from them.
func scaled(name, kind string, dims []int64, codes, scales *Tensor, f *blocks.Format,
	row func(at int64, buffer, codes, scales []byte) error) *Tensor {
	t := &Tensor{Name: name, Type: kind, Dims: dims, Size: codes.Size + scales.Size, Path: codes.Path, Readable: true,
		Format: f, Panels: f.Panels()}
	cols := dims[len(dims)-1]
	size := (cols + int64(f.Elements) - 1) / int64(f.Elements) * int64(f.Size)
	t.row = func(at int64, buffer []byte) ([]byte, error) {
		c, err := codes.Bytes()
		if err != nil {
			return nil, err
		}
		s, err := scales.Bytes()
		if err != nil {
			return nil, err
		}
		buffer = slices.Grow(buffer[:0], int(size))[:size]
		if err := row(at, buffer, c, s); err != nil {
			return nil, fmt.Errorf("%s: tensor %q: %w", scales.Path, scales.Name, err)
		}
		return buffer, nil
	}
	t.Float32 = func(dst []float32, first int64) error {
		var buffer []byte
		for len(dst) > 0 {
			var err error
			if buffer, err = t.row(first/cols, buffer); err != nil {
				return err
			}
			n := min(cols-first%cols, int64(len(dst)))
			f.Decode(dst[:n], buffer, first%cols)
			dst, first = dst[n:], first+n
		}
		return nil
	}
	t.Bytes = func() ([]byte, error) {
		return nil, fmt.Errorf("%s: tensor %q: its elements are in two tensors", t.Path, t.Name)
	}
	return t
}

// fits marks a tensor as unreadable if its scales do not have the expected type and shape.
func (t *Tensor) fits(scales *Tensor, kind onnx.DataType, want []int64) *Tensor {
	if scales.DataType != kind || !slices.Equal(scales.Dims, want) {
		t.Readable = false
		t.Broken = fmt.Errorf("%s: tensor %q is %s %v; the scales of %s %v, %s, are %s %v", scales.Path, scales.Name,
			scales.Type, scales.Dims, t.Name, t.Dims, t.Type, kind, want)
	}
	return t
}

// fp8 has one scale per 128 rows and columns; the last blocks may be smaller.
func fp8(codes, scales *Tensor) *Tensor {
	dims := codes.Dims
	if len(dims) < 2 {
		return &Tensor{Name: codes.Name, Type: TypeFP8, Dims: dims, Path: codes.Path,
			Broken: fmt.Errorf("%s: tensor %q has scales (%q) but is not a "+
				"matrix", codes.Path, codes.Name, scales.Name)}
	}
	n, k := dims[len(dims)-2], dims[len(dims)-1]
	down, across := (n+fp8Block-1)/fp8Block, (k+fp8Block-1)/fp8Block
	t := scaled(codes.Name, TypeFP8, dims, codes, scales, blocks.FP8Block,
		func(at int64, row, c, s []byte) error {
			first := 4 * (at/n*down + at%n/fp8Block) * across
			for b := range across {
				scale := s[first+4*b:][:4]
				if x := math.Float32frombits(binary.LittleEndian.Uint32(scale)); x-x != 0 {
					return fmt.Errorf("the scale of rows from %d and columns from %d on is %v", at/fp8Block*fp8Block,
						b*fp8Block, x)
				}
				block := row[b*int64(blocks.FP8Block.Size):][:blocks.FP8Block.Size]
				copy(block, scale)
				clear(block[4+copy(block[4:], c[at*k+b*fp8Block:min((at+1)*k, at*k+(b+1)*fp8Block)]):])
			}
			return nil
		})
	return t.fits(scales, onnx.Float, append(dims[:len(dims)-2:len(dims)-2], down, across))
}

// mxfp4 has 16 bytes of codes for 32 elements, and one exponent.
func mxfp4(name string, codes, scales *Tensor) *Tensor {
	dims := codes.Dims
	last := len(dims) - 1
	if last < 2 || dims[last] != 16 {
		return &Tensor{Name: name, Type: typeMXFP4, Dims: dims, Path: codes.Path,
			Broken: fmt.Errorf("%s: tensor %q has the shape %v, but blocks of %s have [.., N, K/32, "+
				"16]", codes.Path, codes.Name, dims,
				typeMXFP4)}
	}
	whole := append(dims[:last-1:last-1], 32*dims[last-1])
	count := dims[last-1]
	t := scaled(name, typeMXFP4, whole, codes, scales, blocks.MXFP4Pairs, func(at int64, row, c, s []byte) error {
		for b := range count {
			block, i := row[17*b:][:17], at*count+b
			if block[0] = s[i]; block[0] == 255 {
				return fmt.Errorf("the scale of block %d of row %d is 255, which is not a number", b, at)
			}
			copy(block[1:], c[16*i:16*i+16])
		}
		return nil
	})
	t.OutIn = true
	return t.fits(scales, onnx.Uint8, dims[:last])
}
