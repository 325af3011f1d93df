package linear

import (
	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/site"
)

// site makes the op compute the rows and the state after the last token.
func (s *span) site() *site.Site {
	made := site.New(s.g, fused.LinearAttentionName, s.rows.Producer)
	made.Nodes, made.Intended = s.nodes, s.intended
	inputs := make([]*site.Operand, fused.LinearAttentionBeta+1)
	names, typ := fused.Lookup(made.Op).Inputs, s.singleType()
	rows := func(i int, what fused.Role, o *operand) {
		name := names[i].Name
		shape, _ := s.shapeIn(o.Value, 0)
		inputs[i] = o.layout.asRows(made.Input(what, name, o.Value), name, shape, s.sizesOf(o))
		inputs[i] = inputs[i].Cast(typ)
		if names[i].Type == onnx.Float.String() {
			inputs[i] = inputs[i].Cast(onnx.Float)
		}
	}
	rows(fused.LinearAttentionQ, fused.NoRole, s.q)
	rows(fused.LinearAttentionK, fused.RoleLinearKeys, s.k)
	rows(fused.LinearAttentionV, fused.NoRole, s.v)
	if s.decay != nil && s.factor {
		rows(fused.LinearAttentionDecay, fused.RoleDecay, s.decay)
		inputs[fused.LinearAttentionDecay] = inputs[fused.LinearAttentionDecay].Then("Log", "decay_log", nil)
	} else if s.decay != nil {
		rows(fused.LinearAttentionDecay, fused.RoleDecayLog, s.decay)
	}
	if s.rates != nil {
		inputs[fused.LinearAttentionDecay] = constantDecay(made, s.rates, inputs[fused.LinearAttentionQ])
	}
	if s.beta != nil {
		rows(fused.LinearAttentionBeta, fused.RoleShare, s.beta)
	}
	if s.past != nil {
		past := made.Input(fused.NoRole, "past", s.past).Cast(onnx.Float)
		if s.pastTurned {
			past = past.Transpose("past_turned", 0, 1, 3, 2)
		}
		inputs[fused.LinearAttentionPast] = past
	}
	op := s.op()
	op.Scale = float32(s.scale)
	outputs := fused.Lookup(made.Op).OutputNames()
	if s.present == nil {
		outputs[1] = ""
	}
	out := made.Compute(op, outputs, inputs...)
	y := out[0]
	y.Type = inputs[0].Type
	if s.skip != nil {
		y = s.withSkip(made, y)
	}
	shape, _ := s.shapeIn(s.rows, 0)
	y = y.Cast(s.g.Facts.DataType(s.rows))
	made.Output(s.rows, s.out.layout.fromRows(y, shape, s.sizesOf(s.out)))
	if s.present != nil {
		out[1].Type = onnx.Float
		state := out[1]
		if s.presentTurned {
			state = state.Transpose("present_turned", 0, 1, 3, 2)
		}
		if shape, _ := s.shapeIn(s.present, 0); len(shape) != 4 || shape[1] != s.heads { // these two are one axis
			dims := []int64{-1}
			for _, d := range shape[1:] {
				dims = append(dims, int64(d))
			}
			state = state.With("Reshape", "present_joined", "present_shape", dims...)
		}
		made.Output(s.present, state.Cast(s.g.Facts.DataType(s.present)))
	}
	return made
}

// singleType returns the type of the rows that the op reads, or float32 if they have several: the op takes one type.
func (s *span) singleType() onnx.DataType {
	typ := s.g.Facts.DataType(s.q.Value)
	for _, o := range []*operand{s.k, s.v, s.beta, s.skip} {
		if o != nil && s.g.Facts.DataType(o.Value) != typ {
			return onnx.Float
		}
	}
	return typ
}

func (s *span) sizesOf(o *operand) sizes { return sizes{s.batch[0], s.tokens[0], o.heads, o.width} }

// withSkip adds rows, with a factor for each head, to the op's.
func (s *span) withSkip(made *site.Site, y *site.Operand) *site.Operand {
	factors := make([]float32, 0, s.heads*s.val)
	for _, x := range s.skips {
		for range s.val {
			factors = append(factors, float32(x))
		}
	}
	shape, _ := s.shapeIn(s.skip.Value, 0)
	rows := s.skip.layout.asRows(made.Input(fused.NoRole, "skipped", s.skip.Value), "skipped", shape,
		s.sizesOf(s.skip)).Cast(s.singleType())
	weight := made.Constant("skip_weight", onnx.NewFloat32s("", []int64{int64(len(factors))}, factors))
	return y.Then("Add", "with_skipped", []*site.Operand{rows.Then("Mul", "skipped_weighted", []*site.Operand{weight})})
}
