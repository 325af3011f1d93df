package serving

import (
	"fmt"

	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// onnxruntime-genai 0.18 keeps two states of fixed size for each recurrent layer, which it starts as zeros: conv_state
// and recurrent_state. All conv_states must have one shape and type, and so must all recurrent_states. It computes
// nothing from them, so only their shapes decide which of a model's states take which names.

// stateNames are genai's names of the states, with %d for the number of a pair.
var stateNames = [2]struct{ past, present string }{
	{"past_key_values.%d.conv_state", "present.%d.conv_state"},
	{"past_key_values.%d.recurrent_state", "present.%d.recurrent_state"},
}

// splitStates moves the caches of a fixed size from Caches to states.
func (d *decoder) splitStates() {
	all := d.Caches
	d.Caches = nil
	for _, c := range all {
		if c.Tokens < 0 {
			d.states = append(d.states, c)
		} else {
			d.Caches = append(d.Caches, c)
		}
	}
}

// pairStates orders the states as genai numbers them: the conv_state and the recurrent_state of each pair.
func (d *decoder) pairStates() error {
	if len(d.states) == 0 {
		return nil
	}
	if d.buffers {
		return fmt.Errorf("with buffers for past and present, genai would overwrite state %s while the model reads "+
			"it: patch the model without --cache static", d.states[0].Past)
	}
	kinds := map[string][]generate.Cache{}
	var order []string
	for _, c := range d.states {
		if c.Batch != 0 && !(c.Batch < 0 && len(c.Past.Dims) > 0 && c.Past.Dims[0].Value == 1) {
			return fmt.Errorf("genai needs the batch as the first axis of a state, but the model has %s", c.Past)
		}
		kind := fmt.Sprint(c.Past.DataType, c.Past.Dims[1:])
		if kinds[kind] == nil {
			order = append(order, kind)
		}
		kinds[kind] = append(kinds[kind], c)
	}
	n := len(d.states) / 2
	first, second := kinds[order[0]], []generate.Cache(nil)
	switch {
	case len(order) == 1 && len(first) == 2*n:
		first, second = first[:n], first[n:]
	case len(order) == 2 && len(first) == n:
		second = kinds[order[1]]
	}
	if len(first) != n || len(second) != n {
		return fmt.Errorf("onnxruntime-genai 0.18 keeps two states for each recurrent layer, of the same two shapes "+
			"in all layers, but the model has %s", describeKinds(order, kinds))
	}
	d.states = nil
	for i := range n {
		d.states = append(d.states, first[i], second[i])
	}
	return nil
}

// describeKinds lists the numbers of states of each shape, with the first of each.
func describeKinds(order []string, kinds map[string][]generate.Cache) string {
	text := ""
	for i, kind := range order {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%d like %s", len(kinds[kind]), kinds[kind][0].Past)
	}
	return text
}

// tokensPerRun returns the fixed number of tokens of a sequence that the model takes per run, 0 for any number.
func (d *decoder) tokensPerRun() int64 {
	if d.paged != nil {
		return 0
	}
	return max(0, d.IDs.Dims[1].Value)
}

// newMask returns the mask that has columns only for the new tokens, as a model without keys may have, or nil.
func (d *decoder) newMask() *generate.Port {
	mask := d.Input(roles.Mask)
	if mask == nil || len(d.Caches) > 0 || len(mask.Dims) != 2 || mask.Dims[1] != d.IDs.Dims[1] {
		return nil
	}
	return mask
}

// unmaskNew computes a mask of the new tokens, and returns the name of the input. The mask is ones, since the engines
// run a model with states without padding.
func (d *decoder) unmaskNew() []string {
	mask := d.newMask()
	if mask == nil {
		return nil
	}
	name := mask.Value.Name
	d.give(*mask, d.onePerID())
	return []string{name}
}
