package weights

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// wrappers are prefixes that a parameter's name has or lacks depending on what was saved or exported around the model.
var wrappers = []string{"module.", "_orig_mod.", "base_model.model.", "model.", "transformer.", "language_model."}

// unwrapped takes the prefixes off a name.
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

// variants lists the names that a parameter may have without what an exporter wrapped the model in: itself, and then
// without its first, second, … part, as far as the one before the number of a layer.
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

// lookup finds tensors of a checkpoint by the names of PyTorch's parameters.
type lookup struct {
	c         *Checkpoint
	unwrapped map[string][]*Tensor // safetensors alone, by unwrapped name
	files     map[*architecture]bool
}

func newLookup(c *Checkpoint) *lookup {
	l := &lookup{c: c, unwrapped: map[string][]*Tensor{}, files: map[*architecture]bool{}}
	for _, t := range c.Tensors {
		if t.arch == nil {
			name := unwrapped(t.Name)
			l.unwrapped[name] = append(l.unwrapped[name], t)
		} else {
			l.files[t.arch] = true
		}
	}
	return l
}

// find returns the tensor that a parameter is, nil where there is none. It errs where two fit equally.
func (l *lookup) find(parameter string) (*Tensor, error) {
	if t := l.c.Tensor(parameter); t != nil {
		return t, l.refused(t)
	}
	for _, name := range variants(parameter) {
		switch list := l.unwrapped[unwrapped(name)]; {
		case len(list) == 1:
			return list[0], l.refused(list[0])
		case len(list) > 1:
			return nil, fmt.Errorf("%s may be %s or %s: give a map", parameter, list[0].Name, list[1].Name)
		}
	}
	for arch := range l.files {
		for _, name := range variants(parameter) {
			for _, prefix := range []string{"", "model.", "transformer."} {
				stored, ok := ggufName(arch.name, prefix+name)
				if !ok {
					continue
				}
				if t := l.c.Tensor(stored); t != nil && t.arch == arch {
					return t, l.refused(t)
				}
			}
		}
	}
	return nil, nil
}

func (l *lookup) refused(t *Tensor) error {
	if t.broken != nil {
		return t.broken
	}
	if why := t.arch.refusal(); why != "" {
		return fmt.Errorf("it seems to be %s, but %s", t.Name, why)
	}
	return nil
}

// embeddings are the names of token embeddings and of the heads that may be tied to them.
var (
	embeddings = []string{"embed_tokens.weight", "wte.weight", "embed_in.weight", "word_embeddings.weight",
		"tok_embeddings.weight"}
	heads = []string{"lm_head.weight", "embed_out.weight", "output.weight"}
)

// tied returns the token embedding for a head that the checkpoint lacks, and the head for such an embedding: a model
// that ties them stores one. It is nil for any other parameter.
func (l *lookup) tied(parameter string) (*Tensor, error) {
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

// head returns the head under another of its names.
func (l *lookup) head(parameter string) (*Tensor, error) {
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

// hasName reports whether the parameter is called one of the names, whatever it is in, but for a layer.
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
