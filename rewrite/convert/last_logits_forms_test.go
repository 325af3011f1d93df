package convert

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/onnxtest"
	"github.com/mojo-patch/mojo-patch/reference"
)

// head is a small model that ends in logits: it gathers rows of a 5 x 4 table by ids, and the case builds on them.
type head struct {
	*onnxtest.Builder
	rows, table, shape *onnx.Value // [batch, sequence, 4], [5, 4], and the batch and sequence of ids
}

func newHead() *head {
	h := &head{Builder: onnxtest.New(17)}
	h.Model.IRVersion = 8
	ids := h.Input("ids", onnx.Int64, "batch", "sequence")
	var list []float32
	for i := range 20 {
		list = append(list, float32(i*i%7)-3)
	}
	h.table = h.Graph.AddInitializer(onnx.NewFloat32s("table", []int64{5, 4}, list))
	h.rows = h.Op("Gather", h.table, ids)
	h.shape = h.Op("Shape", ids)
	return h
}

// out declares an output of three axes.
func (h *head) out(v *onnx.Value) {
	v.SetType(onnxtest.Type(onnx.Float, "batch", "sequence", 5))
	h.Output(v)
}

// tied multiplies rows by the transposed table.
func (h *head) tied(x *onnx.Value) *onnx.Value {
	w := h.Op("Transpose", h.table, onnx.IntsAttr("perm", []int64{1, 0}))
	return h.Op("MatMul", x, w)
}

// gemm multiplies rows with two axes by the table.
func (h *head) gemm(x *onnx.Value) *onnx.Value {
	return h.Op("Gemm", x, h.table, h.Floats([]int64{5}, 1, 2, 3, 4, 5), onnx.IntAttr("transB", 1))
}

func (h *head) back(x *onnx.Value) *onnx.Value {
	return h.Op("Reshape", x, h.Op("Concat", h.shape, h.Ints(5), onnx.IntAttr("axis", 0)))
}

// TestLastLogitsForms tries other spellings, and models with further outputs, which stay.
func TestLastLogitsForms(t *testing.T) {
	forms := map[string]func(h *head){
		"tied": func(h *head) { h.out(h.tied(h.rows)) },
		"softcap": func(h *head) {
			x := h.Op("Div", h.tied(h.rows), h.Floats(nil, 30))
			h.out(h.Op("Mul", h.Floats(nil, 30), h.Op("Tanh", x)))
		},
		"softmax": func(h *head) { h.out(h.Op("Softmax", h.tied(h.rows), onnx.IntAttr("axis", 2))) },
		"a part of the vocabulary": func(h *head) {
			y := h.Op("Slice", h.tied(h.rows), h.Ints(1), h.Ints(4), h.Ints(2))
			y.SetType(onnxtest.Type(onnx.Float, "batch", "sequence", 3))
			h.Output(y)
		},
		"flattened": func(h *head) {
			h.out(h.back(h.gemm(h.Op("Reshape", h.rows, h.Ints(-1, 4)))))
		},
		"normed flat": func(h *head) {
			x := h.Op("Relu", h.Op("Reshape", h.rows, h.Ints(-1, 4)))
			h.out(h.Op("Mul", h.back(h.gemm(x)), h.Floats([]int64{1, 1, 5}, 1, 2, 1, 2, 1)))
		},
		"other outputs": func(h *head) {
			x := h.tied(h.rows)
			y := h.Op("Tanh", x)
			h.out(y)
			best := h.Op("ArgMax", y, onnx.IntAttr("axis", 2), onnx.IntAttr("keepdims", 0))
			h.Output(best)
			h.Output(h.rows)
			raw := h.Op("Neg", x)
			h.Output(h.Op("ReduceMax", raw))
		},
		"an output on the way": func(h *head) {
			x := h.tied(h.rows)
			y := h.Op("Tanh", x)
			h.out(y)
			h.Output(h.Op("Identity", y))
			h.Output(h.Op("Size", x))
		},
		"branches": func(h *head) {
			cond := h.Op("Equal", h.Op("Size", h.shape), 2)
			v := h.Graph.NewValue("if")
			n := h.Graph.NewNode("If", []*onnx.Value{cond})
			for _, name := range []string{"then_branch", "else_branch"} {
				s := h.Graph.NewSubgraph(name)
				body := onnxtest.Builder{Model: h.Model, Graph: s}
				body.Output(body.Op("MatMul", h.rows,
					body.Op("Transpose", h.table, onnx.IntsAttr("perm", []int64{1, 0}))))
				n.Attributes = append(n.Attributes, onnx.GraphAttr(name, s))
			}
			n.TakeOutput(0, v)
			h.Graph.Nodes = append(h.Graph.Nodes, n)
			h.out(v)
		},
	}
	ids := onnx.NewInt64s("ids", []int64{0, 3, 4, 1, 2, 2})
	ids.Dims = []int64{2, 3}
	for name, build := range forms {
		t.Run(name, func(t *testing.T) {
			h := newHead()
			build(h)
			want, err := evaluated(h.Model, []*onnx.Tensor{ids})
			if err != nil {
				t.Fatal(err)
			}
			if err := LastLogits(h.Model); err != nil {
				t.Fatal(err)
			}
			m, _ := rewritten(t, h.Model)
			got, err := evaluated(m, []*onnx.Tensor{ids})
			if err != nil {
				t.Fatal(err)
			}
			want[0] = lastPosition(t, want[0])
			if name == "an output on the way" {
				want[1] = lastPosition(t, want[1]) // output 1 is also logits
			}
			if err := equal(got, want); err != nil {
				t.Error(err)
			}
			if d, _ := m.Graph.Outputs[0].Type(); d.Dims[1].Value != 1 || d.Dims[0].Param != "batch" {
				t.Errorf("the output is declared as %+v", d)
			}
			rows := 0
			for _, g := range m.Graphs() {
				for _, n := range g.Nodes {
					if n.Is("MatMul") || n.Is("Gemm") {
						rows++
					}
				}
			}
			if whole := name == "other outputs"; rows != 1 && !whole && name != "branches" &&
				name != "an output on the way" {
				t.Errorf("%d products", rows)
			}
		})
	}
}

// TestLastLogitsErrs: a model without logits for every position stays unchanged, and that the error names the obstacle.
func TestLastLogitsErrs(t *testing.T) {
	for name, c := range map[string]struct {
		build func(h *head)
		want  string
	}{
		"no product":   {func(h *head) { h.out(h.Op("Tanh", h.rows)) }, `node_gather" (Gather) is not known`},
		"the residual": {func(h *head) { h.out(h.Op("Add", h.rows, h.rows)) }, "not have exactly one computed input"},
		"over rows": {func(h *head) { h.out(h.Op("Softmax", h.tied(h.rows), onnx.IntAttr("axis", 1))) },
			"not over the vocabulary"},
		"a choice": {func(h *head) {
			h.out(h.Op("Where", h.Op("Cast", h.tied(h.rows), onnx.IntAttr("to", int64(onnx.Bool))), 1.0, 2.0))
		}, "not have exactly one computed input"},
		"by position": {func(h *head) {
			h.Output(h.Op("Add", h.tied(h.rows), h.Floats([]int64{3, 5}, make([]float32, 15)...)))
		}, "is not the same for all positions"},
		"some positions": {func(h *head) { h.out(h.Op("Slice", h.tied(h.rows), h.Ints(1), h.Ints(9), h.Ints(1))) },
			"another axis than the vocabulary's"},
		"some ids": {func(h *head) {
			h.out(h.Op("Slice", h.tied(h.rows), h.Op("Shape", h.Op("ReduceMax", h.rows)), h.Ints(9), h.Ints(2)))
		}, "another axis than the vocabulary's"},
		"integers": {func(h *head) { h.Output(h.Op("Cast", h.tied(h.rows), onnx.IntAttr("to", int64(onnx.Int64)))) },
			"its elements are int64"},
		"an unknown op": {func(h *head) {
			y := h.Op("Tanh", h.tied(h.rows))
			y.Producer.Domain = "com.example"
			h.out(y)
		}, "is not known to treat each position by itself"},
		"two axes": {func(h *head) {
			h.Output(h.Op("ReduceMax", h.tied(h.rows), onnx.IntsAttr("axes", []int64{1}), onnx.IntAttr("keepdims", 0)))
		}, "it has 2 axes"},
		"rows differ": {func(h *head) {
			h.out(h.Op("Mul", h.tied(h.rows), h.Op("Cast", h.Ints(1), onnx.IntAttr("to", 1))))
		}, ""},
		"by ids": {func(h *head) {
			h.out(h.Op("Add", h.tied(h.rows), h.Op("ReduceMax", h.rows, onnx.IntsAttr("axes", []int64{2}))))
		}, "not have exactly one computed input"},
		"another shape": {func(h *head) {
			h.out(h.Op("Transpose", h.tied(h.rows), onnx.IntsAttr("perm", []int64{0, 1, 2})))
		}, "node_transpose_1"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHead()
			c.build(h)
			before := text(h.Model)
			err := LastLogits(h.Model)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || errors.Is(err, ErrLastOnly) || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "no logits were found: ") {
				t.Errorf("%v", err)
			}
			if text(h.Model) != before {
				t.Error("the model has changed")
			}
		})
	}
	h := newHead()
	last := h.Op("Slice", h.rows, h.Ints(-1), h.Ints(1<<62), h.Ints(1))
	h.out(h.tied(last))
	before := text(h.Model)
	if err := LastLogits(h.Model); !errors.Is(err, ErrLastOnly) || text(h.Model) != before {
		t.Errorf("one that cuts already: %v", err)
	}
	old := newHead()
	old.out(old.tied(old.rows))
	old.Model.Opsets[0].Version = 12
	if err := LastLogits(old.Model); err == nil || !strings.Contains(err.Error(), "the model has opset 12") {
		t.Errorf("opset 12: %v", err)
	}
	if err := LastLogits(nil); err == nil {
		t.Error("no model is none to convert")
	}
}

// TestLastLogitsOfContribProducts covers onnxruntime's own products, which the evaluator here does not run.
func TestLastLogitsOfContribProducts(t *testing.T) {
	for _, op := range []string{"FusedMatMul", "MatMulNBits"} {
		h := newHead()
		h.Model.ImportOpset("com.microsoft", 1)
		y := h.Graph.NewValue("y")
		n := h.Graph.AddNode(op, []*onnx.Value{h.rows}, []*onnx.Value{y})
		n.Domain = "com.microsoft"
		if op == "FusedMatMul" {
			n.SetInput(1, h.table)
			n.SetAttr(onnx.IntAttr("transB", 1))
		} else {
			packed, err := onnx.NewTensor("packed", onnx.Uint8, []int64{5, 1, 8}, make([]byte, 40))
			if err != nil {
				t.Fatal(err)
			}
			n.SetInput(1, h.Graph.AddInitializer(packed))
			n.SetInput(2, h.Floats([]int64{5}, 1, 1, 1, 1, 1))
			for name, x := range map[string]int64{"K": 4, "N": 5, "bits": 4, "block_size": 16} {
				n.SetAttr(onnx.IntAttr(name, x))
			}
		}
		h.out(h.Op("Tanh", y))
		if err := LastLogits(h.Model); err != nil {
			t.Errorf("%s: %v", op, err)
			continue
		}
		if p := n.Input(0).Producer; !p.Is("Slice") {
			t.Errorf("%s reads the output of %s", op, p.OpType)
		}
	}
}

// TestLastRows: the rows that the check compares are the last of each batch.
func TestLastRows(t *testing.T) {
	x := &reference.Tensor{DataType: onnx.Float, Shape: []int{2, 3, 1}, F: []float64{1, 2, 3, 4, 5, 6}}
	if got := lastRows(x, 2, 3); !slices.Equal(got.F, []float64{3, 6}) || !slices.Equal(got.Shape, []int{2, 1, 1}) {
		t.Error(got.Shape, got.F)
	}
	x.Shape = []int{6, 1}
	if got := lastRows(x, 2, 3); !slices.Equal(got.F, []float64{3, 6}) || !slices.Equal(got.Shape, []int{2, 1}) {
		t.Error(got.Shape, got.F)
	}
	if err := sameRows(x, lastRows(x, 2, 3)); err == nil {
		t.Error("six rows are not two")
	}
}
