package serving

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/onnx/roles"
)

// orderLayers sorts the caches by layer, keys before values, and gives them genai's axes, [batch, heads, tokens,
// width].
func (d *decoder) orderLayers() error {
	for i := range d.Caches {
		for _, u := range d.Caches[i].Past.Value.Uses() {
			if u.Node.Domain == fused.Domain && u.Node.OpType == fused.LatentAttentionName {
				return fmt.Errorf("cache %s is one buffer of latents for keys and values, but genai needs both for "+
					"each layer: patch the model without --mla-cache", d.Caches[i].Past)
			}
		}
		if err := d.turnCache(&d.Caches[i]); err != nil {
			return err
		}
	}
	if len(d.Caches)%2 != 0 {
		return fmt.Errorf("it has %d caches, from %s on, but genai needs keys and values of each layer", len(d.Caches),
			d.Caches[0].Past)
	}
	d.Caches = byLayer(d.Caches)
	for i := 0; i < len(d.Caches); i += 2 {
		k, v := d.Caches[i].Past, d.Caches[i+1].Past
		if k.Dims[1] != v.Dims[1] || k.Dims[3] != v.Dims[3] || k.DataType != v.DataType {
			return fmt.Errorf("genai needs keys and values of one shape, but the model has %s and %s", k, v)
		}
	}
	return nil
}

var (
	layerNumber = regexp.MustCompile(`[0-9]+`)
	valueName   = regexp.MustCompile(`(?i)value|(^|[^a-z])v([^a-z]|$)`)
)

// byLayer sorts caches by the numbers in their names, keys first. It keeps the order of the inputs if the names do not
// identify two caches per layer.
func byLayer(caches []generate.Cache) []generate.Cache {
	type place struct{ layer, part int }
	at := map[place]generate.Cache{}
	var layers []int
	for _, c := range caches {
		name := keyValues.ReplaceAllString(c.Past.Value.Name, "")
		numbers := layerNumber.FindAllString(name, -1)
		if len(numbers) == 0 {
			return caches
		}
		n, err := strconv.Atoi(numbers[len(numbers)-1])
		if err != nil {
			return caches
		}
		p := place{layer: n}
		if valueName.MatchString(name) {
			p.part = 1
		}
		if _, twice := at[p]; twice {
			return caches
		}
		at[p] = c
		if !slices.Contains(layers, n) {
			layers = append(layers, n)
		}
	}
	slices.Sort(layers)
	var sorted []generate.Cache
	for _, n := range layers {
		for part := range 2 {
			c, ok := at[place{n, part}]
			if !ok {
				return caches
			}
			sorted = append(sorted, c)
		}
	}
	return sorted
}

// keyValues matches the part that the names of keys and values share.
var keyValues = regexp.MustCompile(`(?i)key_?values?`)

// turnCache changes the axes of a cache to genai's. It transposes past and present if their order differs.
func (d *decoder) turnCache(c *generate.Cache) error {
	dims := c.Past.Dims
	switch {
	case len(dims) != 4 || c.Batch < 0:
		return fmt.Errorf("genai keeps keys and values as [batch, heads, tokens, width], but the model has %s", c.Past)
	}
	order := []int{c.Batch, -1, c.Tokens, -1}
	for axis := range dims {
		switch {
		case axis == c.Batch || axis == c.Tokens:
		case order[1] < 0:
			order[1] = axis
		default:
			order[3] = axis
		}
	}
	if dims[order[1]].Value <= 0 || dims[order[3]].Value <= 0 {
		return fmt.Errorf("genai needs the number of heads and their width as numbers, but the model has %s: export "+
			"it with numbers", c.Past)
	}
	if slices.IsSorted(order) {
		return nil
	}
	back := make([]int64, 4)
	forth := make([]int64, 4)
	turned := make([]onnx.Dim, 4)
	for i, axis := range order {
		forth[i], back[axis], turned[i] = int64(axis), int64(i), dims[axis]
	}
	uses := slices.Clone(c.Past.Value.Uses())
	past := d.node("Transpose", c.Past.Value.Name+"_turned", []*onnx.Value{c.Past.Value}, onnx.IntsAttr("perm", back))
	for _, u := range uses {
		d.edit.SetInput(u.Node, u.Index, past)
	}
	c.Past.Dims = turned
	d.declare(c.Past)
	old := c.Present.Value
	name := old.Name
	if err := d.edit.Rename(d.g, old, name+"_as_computed"); err != nil {
		return err
	}
	present := d.node("Transpose", name, []*onnx.Value{old}, onnx.IntsAttr("perm", forth))
	d.edit.RemovePort(d.g, old)
	d.edit.AddOutput(d.g, present)
	c.Present = generate.Port{Value: present, DataType: c.Present.DataType, Dims: turned, Role: roles.Past}
	c.Batch, c.Tokens = 0, 2
	return nil
}
