package staticcache

import (
	"fmt"
	"slices"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/rewrite/edit"
	"github.com/mojo-patch/mojo-patch/rewrite/pass"
	"github.com/mojo-patch/mojo-patch/rewrite/prove"
)

// Exporters merge a decoder for prompts and one for later steps into an If. Only one of its branches reads a past. A
// buffer allows only one computation: the branch with a past, which may be empty. It replaces the If if the other
// branch computes the same as this one does with an empty past.

// merged is a decoder in the form of an If, with one branch that reads a past and one that does not.
type merged struct {
	node       *onnx.Node
	flag       *onnx.Value // the input that chooses
	with       *onnx.Graph // the branch that reads the past
	flagOfNone int64       // chooses the other branch
}

// findMerged finds a merged decoder, or returns nil.
func findMerged(g *onnx.Graph) *merged {
	if len(g.Outputs) == 0 {
		return nil
	}
	first := g.Outputs[0]
	for first.Producer.Is("Cast") { // of a converted model
		first = first.Producer.Inputs[0]
	}
	for _, n := range g.Nodes {
		then, otherwise := n.Attr("then_branch"), n.Attr("else_branch")
		if !n.Is("If") || then == nil || otherwise == nil || then.Graph == nil || otherwise.Graph == nil ||
			!slices.Contains(n.Outputs, first) {
			continue
		}
		flag := n.Input(0)
		for flag != nil && flag.Producer != nil && (flag.Producer.Is("Squeeze") || flag.Producer.Is("Reshape") ||
			flag.Producer.Is("Cast") || flag.Producer.Is("Identity")) {
			flag = flag.Producer.Input(0)
		}
		if flag == nil || !flag.IsInput || flag.Const != nil {
			continue
		}
		a, b := cachesRead(g, then.Graph), cachesRead(g, otherwise.Graph)
		switch {
		case a > 0 && b == 0:
			return &merged{n, flag, then.Graph, 0}
		case b > 0 && a == 0:
			return &merged{n, flag, otherwise.Graph, 1}
		}
	}
	return nil
}

// cachesRead counts the inputs of a model that may be caches and that a branch reads.
func cachesRead(g, branch *onnx.Graph) (count int) {
	within := map[*onnx.Graph]bool{}
	branch.Walk(func(g *onnx.Graph) { within[g] = true })
	for _, v := range g.Inputs {
		t, _ := v.Type()
		if v.Const == nil && t.DataType.IsFloat() && len(t.Dims) == 4 &&
			slices.ContainsFunc(v.Uses(), func(u onnx.Use) bool { return within[u.Node.Graph] }) {
			count++
		}
	}
	return count
}

func mayBePast(v *onnx.Value) bool {
	t, known := v.Type()
	return !known || t.DataType.IsFloat() && (!t.HasShape || len(t.Dims) >= 3)
}

// TakeMerged replaces the If of a merged decoder by its branch with a past. It returns the name of the If, or "" if the
// model is not merged. It returns ErrNoCache if no input can be a past.
func TakeMerged(run *pass.Run) (string, error) {
	m := run.Model
	if !slices.ContainsFunc(m.Graph.Inputs, mayBePast) {
		return "", fmt.Errorf("the cache cannot be static: %w", errNoPast)
	}
	found := findMerged(m.Graph)
	if found == nil {
		return "", nil
	}
	name := found.node.Label()
	empty := run.NewProver().Before(emptyClaim(m, found))
	c := new(edit.Change)
	_, err := c.InlineBranches(m, func(n *onnx.Node) *onnx.Graph {
		if n == found.node {
			return found.with
		}
		return nil
	})
	if err == nil {
		err = c.RemoveUnread(m.Graph)
	}
	if err == nil {
		err = empty.Holds()
	}
	if err != nil {
		return "", fmt.Errorf("the cache cannot be static: the branch with a past cannot replace node %q "+
			"(If): %w", name, err)
	}
	return name, nil
}

// mergedTrials are sequences with an empty past.
var mergedTrials = []struct {
	tokens  int64
	padding prove.Padding
}{{5, prove.LeftPadding}, {3, prove.NoPadding}, {1, prove.NoPadding}}

// emptyClaim claims that the model computes the same as its branch without a past if the past is empty.
func emptyClaim(m *onnx.Model, found *merged) *prove.Claim {
	run := prove.Model(m)
	inputs := slices.Clone(m.Graph.Inputs)
	var outputs []string
	for _, v := range m.Graph.Outputs {
		outputs = append(outputs, v.Name)
	}
	return &prove.Claim{What: "an empty past", Before: run, After: run, Exact: prove.Structural, Outputs: outputs,
		Trials: func(yield func(prove.Trial, error) bool) {
			for _, t := range mergedTrials {
				trial := prove.Trial{Name: fmt.Sprintf("%d tokens, %s", t.tokens, t.padding.Name)}
				given, err := emptyPast(m, found, t.tokens, t.padding)
				for _, v := range inputs {
					trial.Inputs = append(trial.Inputs, given[v.Name])
				}
				if !yield(trial, err) {
					return
				}
			}
		}}
}

// emptyPast returns inputs of a decoder for two sequences that consist only of new tokens.
func emptyPast(m *onnx.Model, found *merged, tokens int64, p prove.Padding) (map[string]*reference.Tensor, error) {
	const batch = 2
	inputs := map[string]*reference.Tensor{}
	for i, in := range roles.Find(m) {
		dims := []int64{batch, tokens}
		var err error
		switch {
		case in.Value == found.flag:
			inputs[in.Value.Name] = reference.NewInts(in.DataType, slices.Repeat([]int{1}, len(in.Dims)),
				[]int64{found.flagOfNone})
		case in.Role == roles.Index && len(in.Dims) == 2:
			rows := int64(2)
			for _, d := range in.Tables {
				rows = max(rows, d.Value)
			}
			ids := make([]int64, batch*tokens)
			for k := range ids {
				ids[k] = int64(7*k+1) % rows
			}
			inputs[in.Value.Name] = reference.NewInts(in.DataType, []int{batch, int(tokens)}, ids)
		case in.Role == roles.Mask && len(in.Dims) == 2 && in.DataType.IsInteger():
			inputs[in.Value.Name] = p.Tensor(in.DataType, dims)
		case in.Role == roles.Position && len(in.Dims) == 2:
			positions := make([]int64, batch*tokens)
			for k := range positions {
				positions[k] = int64(k) % tokens
			}
			inputs[in.Value.Name] = reference.NewInts(in.DataType, []int{batch, int(tokens)}, positions)
		case in.Role == roles.Past && len(in.Dims) == 4:
			dims = []int64{batch}
			for _, d := range in.Dims[1:] {
				dims = append(dims, max(d.Value, 0))
			}
			if inputs[in.Value.Name], err = prove.MakeInput(prove.Normal, i, in.DataType, dims); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("the branches cannot be compared: input %q is not recognized as ids, a mask, "+
				"positions or a past", in.Value.Name)
		}
	}
	return inputs, nil
}
