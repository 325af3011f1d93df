package golden

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/internal/english"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// The default sizes of RandomInputs: small and all different, so that swapped dimensions do not fit.
const (
	defaultBatch    = 2
	defaultSequence = 6
	defaultPast     = 4
	defaultOther    = 3
)

// sizes holds the sizes of the inputs' dimensions.
type sizes struct {
	batch, sequence, past int64
	symbols               map[string]int64
	exists                existence // nil: every token exists
}

// size returns the size of a dimension. Its symbol may be unknown.
func (s *sizes) size(d onnx.Dim) int64 {
	if d.Value >= 0 {
		return d.Value
	}
	if v, ok := s.symbols[d.Param]; ok {
		return v
	}
	return defaultOther
}

// rows returns the number of rows of the smallest table that the input indexes, or -1 if no size is known.
func (s *sizes) rows(in input) int64 {
	rows := int64(-1)
	for _, d := range in.Tables {
		v, known := s.symbols[d.Param]
		if d.Value >= 0 {
			v, known = d.Value, true
		}
		if known && (rows < 0 || v < rows) {
			rows = v
		}
	}
	return rows
}

// resolveSizes assigns every symbol a size. Unnamed dimensions get unique names first.
func resolveSizes(inputs []input, given map[string]int64) (*sizes, error) {
	nameUnnamed(inputs)
	s := &sizes{batch: defaultBatch, sequence: defaultSequence, symbols: map[string]int64{}}
	if err := s.checkGiven(inputs, given); err != nil {
		return nil, err
	}
	a := axes(inputs)
	if len(a.past) > 0 || a.buffers {
		s.past = defaultPast
	}
	s.choose(&s.batch, "batch", a.batch, given)
	s.choose(&s.sequence, "sequence", a.sequence, given)
	s.choose(&s.past, "past", a.past, given)
	s.pastOfTotal(a, given)
	if _, ok := given["past"]; !ok && a.room > 0 {
		s.past = max(0, min(s.past, a.room-s.sequence))
	}
	s.set(a.batch, s.batch)
	s.set(a.sequence, s.sequence)
	s.set(a.past, s.past)
	s.set(a.total, s.past+s.sequence)
	s.setPaged(inputs)
	for name, v := range given {
		s.symbols[name] = v
	}
	return s, nil
}

// choose takes a size from the caller's dims by name, else by the first symbol for it, else from the model if the
// dimension is a number.
func (s *sizes) choose(size *int64, name string, dims []onnx.Dim, given map[string]int64) {
	if v, ok := given[name]; ok {
		*size = v
		return
	}
	for _, d := range dims {
		if d.Value >= 0 {
			*size = d.Value
			return
		}
		if v, ok := given[d.Param]; ok {
			*size = v
			return
		}
	}
}

// pastOfTotal computes an unknown past from a known total.
func (s *sizes) pastOfTotal(a axisRoles, given map[string]int64) {
	known := func(d onnx.Dim) bool { _, ok := given[d.Param]; return ok || d.Value >= 0 }
	if _, ok := given["past"]; ok || len(a.past) == 0 && !a.buffers || slices.ContainsFunc(a.past, known) {
		return
	}
	for _, d := range a.total {
		total, ok := given[d.Param]
		if d.Value >= 0 {
			total, ok = d.Value, true
		}
		if ok && total >= s.sequence {
			s.past = total - s.sequence
			return
		}
	}
}

func (s *sizes) set(dims []onnx.Dim, v int64) {
	for _, d := range dims {
		if _, known := s.symbols[d.Param]; !known && d.Value < 0 {
			s.symbols[d.Param] = v
		}
	}
}

// nameUnnamed names dimensions without a name by symbols that no exporter writes.
func nameUnnamed(inputs []input) {
	for _, in := range inputs {
		for k, d := range in.Dims {
			if d.Value < 0 && d.Param == "" {
				in.Dims[k].Param = fmt.Sprintf("%s#%d", in.Value.Name, k)
			}
		}
	}
}

func (s *sizes) checkGiven(inputs []input, given map[string]int64) error {
	known := map[string]bool{"batch": true, "sequence": true, "past": true}
	for _, in := range inputs {
		for _, d := range in.Dims {
			if d.Value < 0 {
				known[d.Param] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !known[name] {
			names := slices.Sorted(maps.Keys(known))
			return fmt.Errorf("no input has a dimension %q%s; the dimensions are "+
				"%s", name, english.Suggestion(name, names),
				strings.Join(names, ", "))
		}
		if given[name] < 0 {
			return fmt.Errorf("dimension %q is %d: it must be 0 or more", name, given[name])
		}
	}
	return nil
}

// axisRoles groups the dimensions of the inputs by role.
type axisRoles struct {
	batch, sequence, past, total []onnx.Dim

	buffers bool  // the past is in buffers
	room    int64 // of the buffers; 0: as much as needed
}

// axes groups the dimensions by the roles of their inputs: ids and embeddings first, since they define the sequence.
func axes(inputs []input) axisRoles {
	var a axisRoles
	take := func(list *[]onnx.Dim, in input, axis int) {
		if axis >= 0 && axis < len(in.Dims) {
			*list = append(*list, in.Dims[axis])
		}
	}
	hasIDs := slices.ContainsFunc(inputs, func(in input) bool { return in.Role == roles.Index && len(in.Dims) > 0 })
	for _, in := range inputs {
		last := len(in.Dims) - 1
		switch {
		case in.Role == roles.Index || in.Role == roles.Position:
			take(&a.batch, in, last-1)
			take(&a.sequence, in, last)
		case in.Role == roles.Past && !hasIDs && last == 2: // embeddings instead of ids: [batch, sequence, width]
			in.Role = roles.Other
			take(&a.batch, in, 0)
			take(&a.sequence, in, 1)
		}
	}
	for _, in := range inputs {
		last := len(in.Dims) - 1
		switch in.Role {
		case roles.Past:
			take(&a.batch, in, 0)
			for k := 1; k <= last; k++ {
				if in.Dims[k].Value < 0 {
					take(&a.past, in, k)
				}
			}
		case roles.Buffer:
			take(&a.batch, in, 0)
			a.takeBuffer(in.Dims[bufferAxis])
		case roles.BlockTable:
			take(&a.batch, in, 0)
			a.buffers = true
		case roles.Mask:
			if last > 0 {
				take(&a.batch, in, 0)
			}
			if last > 1 {
				take(&a.sequence, in, last-1)
			}
			take(&a.total, in, last)
		case roles.Last, roles.Total, roles.PastLength:
			take(&a.batch, in, last-1)
			if in.Role == roles.Last { // one number for each sequence of the batch
				take(&a.batch, in, 0)
			}
		}
	}
	return a
}

// takeBuffer takes the length of a buffer. It must have room for all tokens.
func (a *axisRoles) takeBuffer(length onnx.Dim) {
	if a.buffers = true; length.Value >= 0 {
		a.room = length.Value
		return
	}
	a.total = append(a.total, length)
}
