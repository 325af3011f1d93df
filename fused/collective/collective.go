// Package collective has the ops that combine the values of the ranks of a sharded model.
package collective

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused/op"
	"github.com/mojo-patch/mojo-patch/fused/rmsnorm"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// Ops lists the ops of the package in the order of the documentation.
var Ops = []*op.Op{allReduce, allGather, reduceScatter, allToAll, allReduceAddRMSNorm}

var family = &op.Family{
	Name: "collective", Summary: "exchanges between the ranks of a sharded model", Stored: true,
}

const source = "MPI and NCCL; DistCollective of TensorRT 11"

// MaxRanks is the greatest number of ranks, and MaxPlan the greatest length of a plan's digest.
const (
	MaxRanks = 1024
	MaxPlan  = 127
)

// rankAttributes tell a node which rank of a plan it is.
var rankAttributes = []op.AttributeSpec{
	{Name: "rank", Type: onnx.AttrInt, Bounds: op.Bounds{Least: 0, Most: MaxRanks - 1}, Grid: []any{0},
		Doc: "the rank that runs this model, less than ranks"},
	{Name: "ranks", Type: onnx.AttrInt, Bounds: op.Bounds{Least: 1, Most: MaxRanks}, Grid: []any{1},
		Doc: "number of ranks; with more than 1, a node has no body"},
	{Name: "plan", Type: onnx.AttrString, Grid: []any{""},
		Doc: "digest of the plan, equal on all ranks; at most 127 characters"},
}

var axisAttributes = append([]op.AttributeSpec{
	{Name: "axis", Type: onnx.AttrInt, Bounds: op.Bounds{Least: -4, Most: -1, Note: "negative; -1 is the last axis"},
		Grid: []any{-1, -2, -3, -4}, Doc: "axis of the parts, counted from the end (negative)"},
}, rankAttributes...)

var rankRelation = op.Relation{Text: "rank+1 <= ranks", Doc: "a rank that is less than ranks"}

// alongAxis is the shape of a tensor whose dimension at the axis is size.
func alongAxis(size string) op.Shape {
	return op.Shape(fmt.Sprintf("axis: A... %s | A... %s E | A... %s E F | A... %s E F G", size, size, size, size))
}

// collective returns an op of one input and one output.
func collective(o op.Op) *op.Op {
	o.Family, o.Devices, o.Source, o.Types = family, []op.Device{op.CPU, op.CUDA}, source, op.Independent("T")
	o.Where = append(o.Where, rankRelation)
	o.Check, o.NoBody = checkPlan, isShared
	o.Variant = func(op.Site) string { return "one_rank" }
	o.Wide = func(form op.FormMaker) []op.Form { return []op.Form{form([][]int64{op.WideRow})} }
	o.Body = func(b *op.Body, _ op.Site) []*onnx.Value { return []*onnx.Value{b.Call("Y", "Identity", b.In[0])} }
	return &o
}

// isShared reports whether a node needs other ranks, so that it has no body.
func isShared(s op.Site) bool { return s.Attr("ranks").Int > 1 }

func checkPlan(s op.Site) error {
	if n := len(s.Attr("plan").String); n > MaxPlan {
		return fmt.Errorf("the attribute plan has %d characters; it must have at most %d", n, MaxPlan)
	}
	return nil
}

// axisShapes lists shapes for the axis of a site.
func axisShapes(s op.Site) [][][]int64 {
	return [][][]int64{{op.ExampleX}, {{2, 3, 2, 5}}}[max(0, -int(s.Attr("axis").Int)-3):]
}

var allReduce = collective(op.Op{
	Name:       "AllReduce",
	Summary:    "Sum of the ranks' tensors, with equal bits on every rank.",
	Formula:    []string{"Y = round_T(X of rank 0 + X of rank 1 + ...), summed in float32 in this order"},
	Inputs:     []op.Param{{Name: "X", Type: "T", Dims: "A..."}},
	Outputs:    []op.Param{{Name: "Y", Type: "T", Dims: "A..."}},
	Attributes: rankAttributes,
	Shapes:     func(op.Site) [][][]int64 { return [][][]int64{{op.ExampleX}} },
})

var allGather = collective(op.Op{
	Name:       "AllGather",
	Summary:    "The ranks' tensors, concatenated along an axis.",
	Formula:    []string{"Y = concatenation of X of rank 0, X of rank 1, ... along axis"},
	Inputs:     []op.Param{{Name: "X", Type: "T", Dims: alongAxis("D")}},
	Outputs:    []op.Param{{Name: "Y", Type: "T", Dims: alongAxis("D*ranks")}},
	Attributes: axisAttributes,
	Shapes:     axisShapes,
})

var dividedRelation = op.Relation{Text: "ranks divides D", Doc: "a dimension at axis that the ranks divide"}

var reduceScatter = collective(op.Op{
	Name:       "ReduceScatter",
	Summary:    "A part of the sum of the ranks' tensors.",
	Formula:    []string{"Y = part number rank of AllReduce(X), in ranks equal parts along axis"},
	Inputs:     []op.Param{{Name: "X", Type: "T", Dims: alongAxis("D")}},
	Outputs:    []op.Param{{Name: "Y", Type: "T", Dims: alongAxis("D/ranks")}},
	Attributes: axisAttributes,
	Where:      []op.Relation{dividedRelation},
	Shapes:     axisShapes,
})

var allToAll = collective(op.Op{
	Name:    "AllToAll",
	Summary: "Exchange of parts: each rank gets its part of every rank's tensor.",
	Formula: []string{"Y = concatenation, along axis, of part number rank of X of rank 0, of X of rank 1, ...",
		"X is cut into ranks equal parts along axis"},
	Inputs:     []op.Param{{Name: "X", Type: "T", Dims: alongAxis("D")}},
	Outputs:    []op.Param{{Name: "Y", Type: "T", Dims: alongAxis("D")}},
	Attributes: axisAttributes,
	Where:      []op.Relation{dividedRelation},
	Shapes:     axisShapes,
})

// allReduceAddRMSNorm is AddRMSNorm of a sum over the ranks.
var allReduceAddRMSNorm = func() *op.Op {
	o := *rmsnorm.AddOp
	o.Name = "AllReduceAddRMSNorm"
	o.Summary = "AllReduce, residual addition and root-mean-square layer normalization; the sum is an output too."
	o.Formula = append([]string{"R = AllReduce(X; rank, ranks, plan)", "sum = round_T(R + residual)"},
		o.Formula[1:]...)
	o.Family, o.Devices = family, []op.Device{op.CPU, op.CUDA}
	o.Source = "allreduce_rms_fusion of vLLM, and TensorRT-LLM"
	o.Attributes = slices.Concat(o.Attributes, rankAttributes)
	o.Where, o.NoBody = []op.Relation{rankRelation}, isShared
	o.Check = func(s op.Site) error {
		if err := checkPlan(s); err != nil {
			return err
		}
		return rmsnorm.Supports("AllReduceAddRMSNorm", s, 2)
	}
	return &o
}()
