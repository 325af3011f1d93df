package generate

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
)

// rowOf returns the place of a row's logits, counted in rows of the vocabulary, at slot of the new tokens. Logits are
// [batch, sequence, vocabulary], with all new tokens or the last one alone, [batch, vocabulary], or without the batch.
func rowOf(dims []int64, rows, fresh, row, slot int) (int, error) {
	n := 1
	for _, d := range dims[:max(0, len(dims)-1)] {
		n *= int(d)
	}
	switch {
	case len(dims) > 0 && n == rows && slot < fresh-1:
		return 0, fmt.Errorf("the logits %v are of the last of %d tokens, which is padding: they are wanted for "+
			"every token", dims, fresh)
	case len(dims) > 0 && n == rows:
		return row, nil
	case len(dims) > 0 && n == rows*fresh:
		return row*fresh + slot, nil
	}
	return 0, fmt.Errorf("the logits are %v, where %d sequences of %d new tokens were given", dims, rows, fresh)
}

// readRow returns row of the logits as float32: a view where they are, else converted into scratch, which it makes
// large enough. It is valid until the value is closed, or scratch is used again.
func readRow(v *ort.Value, row int, scratch *[]float32) ([]float32, error) {
	b, err := v.Bytes()
	if err != nil {
		return nil, err
	}
	classes, width := int(v.Dims[len(v.Dims)-1]), v.DataType.Bits()/8
	if classes == 0 {
		return nil, fmt.Errorf("the logits %v are of an empty vocabulary", v.Dims)
	}
	b = b[row*classes*width : (row+1)*classes*width]
	if v.DataType == onnx.Float && uintptr(unsafe.Pointer(&b[0]))%4 == 0 {
		return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), classes), nil
	}
	if cap(*scratch) < classes {
		*scratch = make([]float32, classes)
	}
	out := (*scratch)[:classes]
	if !v.DataType.IsFloat() {
		return nil, fmt.Errorf("logits of %s are not supported", v.DataType)
	}
	blocks.ReaderOf(v.DataType)(out, b)
	return out, nil
}

// gap is how far the greatest logit is above the next one.
func gap(logits []float32) float32 {
	first, second := float32(math.Inf(-1)), float32(math.Inf(-1))
	for _, x := range logits {
		if x > first {
			first, second = x, first
		} else if x > second {
			second = x
		}
	}
	return first - second
}
