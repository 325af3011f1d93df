package generate

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/mojo-patch/mojo-patch/internal/blocks"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/ort"
)

// rowOf returns the index of a row's logits at slot of the new tokens, in units of vocabulary rows. Logits are [batch,
// sequence, vocabulary] with all new tokens or only the last one, [batch, vocabulary], or without the batch.
func rowOf(dims []int64, rows, fresh, row, slot int) (int, error) {
	n := 1
	for _, d := range dims[:max(0, len(dims)-1)] {
		n *= int(d)
	}
	switch {
	case len(dims) > 0 && n == rows && slot < fresh-1:
		return 0, fmt.Errorf("the logits %v are of the last of %d tokens, which is padding: use a model with logits "+
			"for every token", dims, fresh)
	case len(dims) > 0 && n == rows:
		return row, nil
	case len(dims) > 0 && n == rows*fresh:
		return row*fresh + slot, nil
	}
	return 0, fmt.Errorf("the logits have the shape %v, but the inputs had %d sequences of %d new "+
		"tokens", dims, rows, fresh)
}

// logits holds the logits of a run, on the host.
type logits struct {
	dataType onnx.DataType
	dims     []int64
	elements []byte
	value    *ort.Value // the value that owns the elements and is closed with them, or nil
}

// take takes ownership of a value on the host and reads its logits.
func (l *logits) take(v *ort.Value) error {
	elements, err := v.Bytes()
	*l = logits{v.DataType, v.Dims, elements, v}
	return err
}

// copy reads the logits of a value without taking ownership.
func (l *logits) copy(v *ort.Value) error {
	*l = logits{v.DataType, v.Dims, nil, nil}
	var err error
	if v.OnHost() {
		l.elements, err = v.Bytes()
		return err
	}
	t, err := v.Tensor()
	if err == nil {
		l.elements, err = t.Bytes()
	}
	return err
}

func (l *logits) close() error {
	v := l.value
	l.elements, l.value = nil, nil
	if v == nil {
		return nil
	}
	return v.Close()
}

// row returns a row of the logits as float32: a view of float32 logits, else a conversion into scratch, which it grows
// as needed. The row is valid until the logits are closed or scratch is used again.
func (l *logits) row(row int, scratch *[]float32) ([]float32, error) {
	classes, width := int(l.dims[len(l.dims)-1]), l.dataType.Bits()/8
	if classes == 0 {
		return nil, fmt.Errorf("the logits %v have an empty vocabulary", l.dims)
	}
	b := l.elements[row*classes*width : (row+1)*classes*width]
	if l.dataType == onnx.Float && uintptr(unsafe.Pointer(&b[0]))%4 == 0 {
		return unsafe.Slice((*float32)(unsafe.Pointer(&b[0])), classes), nil
	}
	if cap(*scratch) < classes {
		*scratch = make([]float32, classes)
	}
	out := (*scratch)[:classes]
	if !l.dataType.IsFloat() {
		return nil, fmt.Errorf("logits of %s are not supported", l.dataType)
	}
	blocks.ReaderOf(l.dataType)(out, b)
	return out, nil
}

// gap is the distance of the greatest logit from the next one.
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
