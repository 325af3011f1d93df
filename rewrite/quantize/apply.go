package quantize

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference/infer"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/quantized"
)

// Inputs lists the values of the model's graph that are multiplied by the weights, each once.
func (p *Plan) Inputs() []*onnx.Value {
	var list []*onnx.Value
	for _, w := range p.Weights {
		for _, n := range w.products {
			if v := n.Input(0); v.Graph == p.model.Graph && v.Const == nil && !slices.Contains(list, v) {
				list = append(list, v)
			}
		}
	}
	return list
}

// Measure rounds every weight once and records its error. activations has rows of the values in Inputs, by name, and
// may be nil. A weight that cannot be rounded stays.
func (p *Plan) Measure(activations map[string][][]float32, progress func(done, total int)) {
	total := len(p.Weights)
	done := 0
	measured := map[*matrix]*Weight{}
	p.leave(func(w *Weight) error {
		defer func() { done++; progress(done, total) }()
		var sample [][]float32
		for _, n := range w.products {
			for _, row := range activations[n.Input(0).Name] {
				if int64(len(row)) == w.K {
					sample = append(sample, row)
				}
			}
		}
		if other := measured[w.matrix]; other != nil && sample == nil {
			w.RMS, w.Cosine = other.RMS, other.Cosine
			return nil
		}
		var all sums
		err := w.matrix.round(w.matrix.n, sample, func(r *rounded) error {
			all.join(r.sums)
			return nil
		})
		if err != nil {
			return err
		}
		measured[w.matrix] = w
		w.RMS, w.Cosine = part(all.apart, all.was), all.cosine()
		if sample != nil {
			x := part(all.change, all.product)
			w.Product = &x
		}
		return nil
	})
}

// KeepAbove leaves weights unrounded if their error exceeds limit: the error of their products, if it is known.
func (p *Plan) KeepAbove(limit float64) {
	p.leave(func(w *Weight) error {
		if w.Product != nil && *w.Product > limit {
			return fmt.Errorf("the error of its products is above %g", limit)
		}
		if w.Product == nil && w.RMS > limit {
			return fmt.Errorf("its error is above %g", limit)
		}
		return nil
	})
}

// leave removes the weights from the plan for which f returns an error.
func (p *Plan) leave(f func(*Weight) error) {
	p.Weights = slices.DeleteFunc(p.Weights, func(w *Weight) bool {
		err := f(w)
		if err != nil {
			p.Skipped = append(p.Skipped, Skipped{w.Name, err.Error(), w.Before})
		}
		return err != nil
	})
}

// Apply makes the graph read the rounded weights: see rewrite.Quantize and rewrite.Narrow. Their bytes are computed
// when the model is written. checks configures the check of each kind of site.
func (p *Plan) Apply(checks rewrite.Request) (*quantized.Report, error) {
	p.types()
	var list []*quantized.Weight
	var floats []*quantized.Narrow
	of, narrow := map[*Weight]*quantized.Weight{}, map[*Weight]*quantized.Narrow{}
	for _, w := range p.Weights {
		m := w.matrix
		if m.quantized == nil && m.narrow == nil {
			if err := m.describe(w.Name); err != nil {
				return nil, err
			}
		}
		if m.isHalf() {
			narrow[w] = &quantized.Narrow{Value: w.value, Tensor: m.narrow, Turned: w.turned && m.experts == 0}
			floats = append(floats, narrow[w])
			continue
		}
		of[w] = &quantized.Weight{Value: w.value, InOut: w.turned, Matrix: m.quantized, Sample: m.sampled}
		list = append(list, of[w])
	}
	r, err := rewrite.Quantize(p.model, list, p.options.Activations, checks)
	if err != nil {
		return nil, err
	}
	if len(floats) > 0 {
		half, err := rewrite.Narrow(p.model, floats, checks)
		if err != nil {
			return nil, err
		}
		r.Include(half)
	}
	p.leave(func(w *Weight) error {
		if n := narrow[w]; n != nil {
			return n.Refused
		}
		return r.Refuse[of[w]]
	})
	stored := map[*matrix]bool{} // the first one listed has the bytes
	for _, w := range p.Weights {
		if w.After = 0; !stored[w.matrix] {
			stored[w.matrix], w.After = true, w.matrix.size()
		}
	}
	return r, nil
}

// types finds the types of the operands of Gather and MoE that the model does not declare.
func (p *Plan) types() {
	var facts *infer.Facts
	for _, w := range p.Weights {
		for _, n := range w.others {
			for _, v := range n.Inputs {
				if v == nil || v.Const != nil {
					continue
				}
				if t, ok := v.Type(); ok && t.DataType != onnx.Undefined {
					continue
				}
				if facts == nil {
					facts = infer.Analyze(p.model)
				}
				if t := facts.DataType(v); t != onnx.Undefined {
					v.SetType(onnx.Type{DataType: t})
				}
			}
		}
	}
}
