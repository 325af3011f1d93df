package weights

import (
	"fmt"
	"github.com/mojo-patch/mojo-patch/llm/weights/checkpoint"
	"github.com/mojo-patch/mojo-patch/llm/weights/llamacpp"
	"regexp"
	"strconv"
	"strings"
)

// wrappers are prefixes that a parameter's name may have if something wrapped the model when it was saved.
var wrappers = []string{"module.", "_orig_mod.", "base_model.model.", "model.", "transformer.", "language_model."}

// unwrapped removes the prefixes of a name.
func unwrapped(name string) string {
	for again := true; again; {
		again = false
		for _, w := range wrappers {
			if rest, ok := strings.CutPrefix(name, w); ok && rest != "" {
				name, again = rest, true
			}
		}
	}
	return name
}

// variants lists the names of a parameter without an exporter's wrappers: the name itself, then without its first,
// second, … part, up to the part before a layer number.
func variants(name string) []string {
	list := []string{name}
	for {
		first, rest, ok := strings.Cut(name, ".")
		next, _, more := strings.Cut(rest, ".")
		if _, err := strconv.ParseUint(next, 10, 31); !ok || !more || err == nil || first == "" {
			return list
		}
		list = append(list, rest)
		name = rest
	}
}

var inLayer = regexp.MustCompile(`\.\d+\.`)

// lookup finds tensors of a checkpoint by PyTorch parameter names.
type lookup struct {
	c         *checkpoint.Checkpoint
	unwrapped map[string][]*checkpoint.Tensor // only safetensors, by unwrapped name
	files     map[*llamacpp.Architecture]bool
}

func newLookup(c *checkpoint.Checkpoint) *lookup {
	l := &lookup{c: c, unwrapped: map[string][]*checkpoint.Tensor{}, files: map[*llamacpp.Architecture]bool{}}
	for _, t := range c.Tensors {
		if t.Arch == nil {
			name := unwrapped(t.Name)
			l.unwrapped[name] = append(l.unwrapped[name], t)
		} else {
			l.files[t.Arch] = true
		}
	}
	return l
}

// find returns the tensor of a parameter, or nil. It returns an error if two tensors fit equally well.
func (l *lookup) find(parameter string) (*checkpoint.Tensor, error) {
	if t := l.c.Tensor(parameter); t != nil {
		return t, l.refused(t)
	}
	for _, name := range variants(parameter) {
		switch list := l.unwrapped[unwrapped(name)]; {
		case len(list) == 1:
			return list[0], l.refused(list[0])
		case len(list) > 1:
			return nil, fmt.Errorf("%s may be %s or %s: use --map to choose", parameter, list[0].Name, list[1].Name)
		}
	}
	for arch := range l.files {
		for _, name := range variants(parameter) {
			for _, prefix := range []string{"", "model.", "transformer."} {
				stored, ok := llamacpp.TensorName(arch.Name, prefix+name)
				if !ok {
					continue
				}
				if t := l.c.Tensor(stored); t != nil && t.Arch == arch {
					return t, l.refused(t)
				}
			}
		}
	}
	return nil, nil
}

func (l *lookup) refused(t *checkpoint.Tensor) error {
	if t.Broken != nil {
		return t.Broken
	}
	if why := t.Arch.Refusal(); why != "" {
		return fmt.Errorf("it seems to be %s, but %s", t.Name, why)
	}
	return nil
}

// embeddings are the names of token embeddings, heads those of the heads that may be tied to them.
var (
	embeddings = []string{"embed_tokens.weight", "wte.weight", "embed_in.weight", "word_embeddings.weight",
		"tok_embeddings.weight"}
	heads = []string{"lm_head.weight", "embed_out.weight", "output.weight"}
)

// tied returns the token embedding for a head that the checkpoint lacks, or the head for a missing embedding: a model
// that ties them stores only one. It returns nil for other parameters.
func (l *lookup) tied(parameter string) (*checkpoint.Tensor, error) {
	others := embeddings
	if hasName(parameter, embeddings) {
		others = heads
	} else if !hasName(parameter, heads) {
		return nil, nil
	}
	for _, other := range others {
		for _, prefix := range []string{"", "model.", "transformer.", "gpt_neox."} {
			if t, err := l.find(prefix + other); t != nil || err != nil {
				return t, err
			}
		}
	}
	return nil, nil
}

// head returns the head under one of its other names.
func (l *lookup) head(parameter string) (*checkpoint.Tensor, error) {
	if !hasName(parameter, heads) {
		return nil, nil
	}
	for _, other := range heads {
		if t, err := l.find(other); t != nil || err != nil {
			return t, err
		}
	}
	return nil, nil
}

// hasName reports whether the parameter has one of the names and is not inside a layer.
func hasName(parameter string, names []string) bool {
	if inLayer.MatchString(parameter) {
		return false
	}
	for _, name := range names {
		if parameter == name || strings.HasSuffix(parameter, "."+name) {
			return true
		}
	}
	return false
}
