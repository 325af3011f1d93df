package weights

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
)

// Missing returns the number of expected initializers without a tensor, or with one of another shape.
func (p *Plan) Missing() int { return len(p.missing) }

// Kept returns the number of initializers that KeepQuantized left in the checkpoint's format.
func (p *Plan) Kept() int {
	n := 0
	for _, a := range p.assignments {
		if a.kept != nil || a.half != nil {
			n++
		}
	}
	return n
}

// Apply sets the initializers to tensors whose elements are read, reordered and cast to the initializers' types, one
// tensor at a time, when the model is written. Types may change between Match and Apply, shapes may not. progress is
// called after each tensor. The checkpoint must stay open while the model is in use.
func (p *Plan) Apply(progress func(done, total int)) error {
	x := &execution{written: map[*assignment]int64{}, progress: progress}
	made, c, halves := map[*assignment]*onnx.Tensor{}, new(edit.Change), map[*onnx.Tensor]bool{}
	for _, a := range p.assignments {
		if a.present {
			continue
		}
		if a.kept != nil {
			if a.kept.written == nil {
				x.total++
				a.kept.written = func() { x.wrote(a, 0) }
			}
			continue
		}
		if a.half != nil {
			if !halves[a.half] {
				halves[a.half] = true
				x.total++
			}
			continue
		}
		old := a.value.Const
		if !slices.Equal(old.Dims, a.recipe.dims) {
			return fmt.Errorf("initializer %q is %v now, but was %v", a.value.Name, old.Dims, a.recipe.dims)
		}
		if first := made[a.tied]; a.tied != nil && first != nil && first.DataType == old.DataType {
			made[a] = first.Tied(old.Name)
			c.SetConst(a.value, made[a])
			continue
		}
		a.tied = nil
		x.total++
		t, err := onnx.NewDeferred(old.Name, old.DataType, old.Dims, func(w io.Writer) error {
			return x.write(w, a, old.DataType)
		})
		if err != nil {
			return err
		}
		made[a] = t
		c.SetConst(a.value, t)
	}
	p.execution = x
	return nil
}

// execution writes elements on demand and counts those that became infinite.
type execution struct {
	mu       sync.Mutex
	stream   stream
	written  map[*assignment]int64 // finite elements that became infinite
	total    int
	progress func(done, total int)
}

func (x *execution) write(w io.Writer, a *assignment, t onnx.DataType) error {
	x.mu.Lock()
	n, err := x.stream.write(w, a.recipe, t)
	x.mu.Unlock()
	if err == nil {
		x.wrote(a, n)
	}
	return err
}

// wrote records that a key's elements were written, and how many of them became infinite.
func (x *execution) wrote(a *assignment, overflows int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.written[a] = overflows
	if x.progress != nil {
		x.progress(len(x.written), x.total)
	}
}

// compared is the size up to which existing elements of the graph are compared with the checkpoint's.
const compared = 1 << 20

// compare reports whether an initializer's elements equal the checkpoint's. It returns nil if they are too many to
// compare.
func (a *assignment) compare() *bool {
	t := a.value.Const
	b, err := t.Bytes()
	if err != nil || t.Size() > compared {
		return nil
	}
	_, err = (&stream{}).write(&comparison{rest: b}, a.recipe, t.DataType)
	equal := err == nil
	if !equal && !errors.Is(err, errDiffers) {
		return nil
	}
	return &equal
}

var errDiffers = errors.New("the elements differ")

// comparison is a writer that compares the written elements with rest.
type comparison struct{ rest []byte }

func (c *comparison) Write(b []byte) (int, error) {
	if len(b) > len(c.rest) || string(b) != string(c.rest[:len(b)]) {
		return 0, errDiffers
	}
	c.rest = c.rest[len(b):]
	return len(b), nil
}
