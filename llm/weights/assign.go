package weights

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojo-patch/mojo-patch/llm/weights/checkpoint"
	"github.com/mojo-patch/mojo-patch/llm/weights/parameters"
	"github.com/mojo-patch/mojo-patch/onnx"
)

// candidate is a possible name of an initializer in a checkpoint.
type candidate struct {
	name string
	rule Rule
}

func (x *matcher) candidates(v *onnx.Value) []candidate {
	list := []candidate{{v.Name, ByName}}
	for _, name := range parameters.Names(v) {
		list = append(list, candidate{name, ByModule})
	}
	if name := x.roles[v]; name != "" {
		list = append(list, candidate{name, ByRole})
	}
	return list
}

// survey learns from an initializer how the checkpoint stores its matrices.
func (x *matcher) survey(v *onnx.Value) {
	if len(v.Const.Dims) < 2 {
		return
	}
	for _, c := range x.candidates(v) {
		if t, err := x.look.find(c.name); t != nil && err == nil {
			x.learn(v, matrixOf(t, t.Dims))
			return
		}
	}
}

// assign finds the tensors of an initializer. If it fails it returns nil, and the reason if it is known.
func (x *matcher) assign(v *onnx.Value) (*assignment, error) {
	if e, ok := x.entries[v.Name]; ok {
		return x.mapped(v, e)
	}
	var first error
	var stack *assignment // of experts whose module names no parameter
	for _, c := range x.candidates(v) {
		a, err := x.named(v, c)
		switch {
		case a != nil && c.rule == ByModule && parameters.IsExpertParameter(c.name):
			if stack != nil && stack.recipe.key() != a.recipe.key() {
				return nil, fmt.Errorf("it may be %s or %s: use --map to "+
					"choose", stack.tensors[0].Name, a.tensors[0].Name)
			}
			stack = a
		case a != nil:
			return a, nil
		case first == nil:
			first = err
		}
	}
	return stack, first
}

// tied assigns the token embedding to a head that the checkpoint lacks, or an otherwise unused head to the embedding.
func (x *matcher) tied(v *onnx.Value) (a *assignment, err error) {
	if _, mapped := x.entries[v.Name]; mapped || x.why[v] != nil {
		return nil, nil
	}
	for _, c := range x.candidates(v) {
		t, err := x.look.tied(c.name)
		switch {
		case err != nil:
			return nil, err
		case t == nil:
			continue
		case x.c.Untied:
			return nil, fmt.Errorf("the checkpoint has only %s, but its config.json says that the head and the token "+
				"embedding are separate (tie_word_embeddings)", t.Name)
		case hasName(c.name, embeddings) && x.consumed[t]:
			continue
		}
		if a, err = x.single(v, t, c.rule == ByName); a != nil {
			a.rule = ByTie
		}
		return a, err
	}
	return nil, nil
}

// named looks up a parameter: a single tensor, or one assembled from several.
func (x *matcher) named(v *onnx.Value, c candidate) (a *assignment, err error) {
	t, err := x.look.find(c.name)
	if t == nil && err == nil && strings.Contains(c.name, ".mlp.") { // Mixtral's checkpoints use an older name
		t, err = x.look.find(strings.Replace(c.name, ".mlp.", ".block_sparse_moe.", 1))
	}
	if t == nil && err == nil {
		t, err = x.look.head(c.name)
	}
	switch {
	case err != nil:
		return nil, err
	case t != nil:
		a, err = x.single(v, t, c.rule == ByName)
	default:
		a, err = x.experts(v, c)
	}
	if a != nil {
		a.rule = c.rule
	}
	return a, err
}

// single makes an initializer from one tensor.
func (x *matcher) single(v *onnx.Value, t *checkpoint.Tensor, own bool) (*assignment, error) {
	transposed, err := x.orient(v, matrixOf(t, t.Dims), own)
	if err != nil {
		return nil, err
	}
	heads, err := t.Arch.RopeHeads(t.Name)
	if err != nil {
		return nil, err
	}
	add, err := x.normFactor(v, t, own)
	if err != nil {
		return nil, err
	}
	r, err := newRecipe(v.Const.Dims, t, transposed, heads, add)
	if err == nil {
		err = r.ungroup(t)
	}
	if err != nil {
		return nil, err
	}
	return x.checked(v, r)
}

// mapped follows an entry of the map.
func (x *matcher) mapped(v *onnx.Value, e MapEntry) (*assignment, error) {
	t := x.c.Tensor(e.Tensor)
	if t == nil {
		return nil, fmt.Errorf("the map names the tensor %s, which is not in any file", e.Tensor)
	}
	want := v.Const.Dims
	if e.Shape != nil && !slices.Equal(e.Shape, want) {
		return nil, &mismatch{"the map's entry", e.Shape, want}
	}
	k := len(t.Dims)
	found := slices.Clone(t.Dims)
	if e.Transposed {
		if k < 2 {
			return nil, fmt.Errorf("the map transposes %s, which has %d axes", t.Name, k)
		}
		found[k-1], found[k-2] = found[k-2], found[k-1]
	}
	if !slices.Equal(found, want) {
		return nil, &mismatch{t.Name, found, want}
	}
	r, err := newRecipe(want, t, e.Transposed, e.RopeHeads, float32(e.Add))
	if err != nil {
		return nil, err
	}
	a, err := x.checked(v, r)
	if a != nil {
		a.rule = ByMap
	}
	return a, err
}
