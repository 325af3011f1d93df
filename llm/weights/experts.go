package weights

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
)

// Experts are stored individually or stacked along the first axis, with the gate and up projections separate or
// concatenated. Graph and checkpoint may use different forms.

var oneExpert = regexp.MustCompile(`^(.*\.experts)\.(\d+)\.(.+)$`)

// experts assembles an initializer from tensors in another of these forms. It returns nil if they are missing.
func (x *matcher) experts(v *onnx.Value, c candidate) (*assignment, error) {
	own := c.rule == ByName
	if parts := oneExpert.FindStringSubmatch(c.name); parts != nil {
		e, err := strconv.ParseInt(parts[2], 10, 31)
		if err != nil {
			return nil, nil
		}
		return x.unstack(v, parts[1]+"."+parts[3], e, own)
	}
	i := strings.LastIndex(c.name, ".experts.")
	if i < 0 || len(v.Const.Dims) != 3 {
		return nil, nil
	}
	in, projection := c.name[:i+len(".experts")], strings.TrimSuffix(c.name[i+len(".experts."):], ".weight")
	projections := []string{projection}
	if projection == "gate_up_proj" {
		projections = []string{"gate_proj", "up_proj"}
	}
	return x.stack(v, in, projections, own)
}

// unstack takes expert e out of a stack.
func (x *matcher) unstack(v *onnx.Value, name string, e int64, own bool) (*assignment, error) {
	t, err := x.look.find(name)
	if t == nil || err != nil {
		return nil, err
	}
	if len(t.Dims) < 2 || e >= t.Dims[0] {
		return nil, &mismatch{t.Name, t.Dims, v.Const.Dims}
	}
	dims := t.Dims[1:]
	transposed, err := x.orient(v, matrixOf(t, dims), own)
	if err != nil {
		return nil, err
	}
	rows, cols := dims[0], product(dims[1:])
	return x.checked(v, &recipe{dims: v.Const.Dims,
		blocks: []block{{[]piece{{t, e * rows * cols, rows, cols, 0}}, transposed}}})
}

// others are the names of the same projections in Mixtral's checkpoints.
var others = map[string]string{"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}

// stack stacks the experts, each with its projections below each other.
func (x *matcher) stack(v *onnx.Value, in string, projections []string, own bool) (*assignment, error) {
	count := v.Const.Dims[0]
	parts := make([][]piece, count)
	for _, projection := range projections {
		list, err := x.projection(in, projection, count)
		if list == nil || err != nil {
			return nil, err
		}
		for e, p := range list {
			parts[e] = append(parts[e], p)
		}
	}
	if count == 0 {
		return nil, nil
	}
	whole := block{pieces: parts[0]}
	rows, cols := whole.size()
	first := parts[0][0].t
	transposed, err := x.orient(v, matrix{first.Name, []int64{count, rows, cols}, true, true, ""}, own)
	if err != nil {
		return nil, err
	}
	r := &recipe{dims: v.Const.Dims}
	for _, pieces := range parts {
		b := block{pieces, transposed}
		for _, p := range pieces {
			if p.cols != cols {
				return nil, &mismatch{p.t.Name, p.t.Dims, v.Const.Dims}
			}
		}
		if n, _ := b.size(); n != rows {
			return nil, &mismatch{pieces[0].t.Name, pieces[0].t.Dims, v.Const.Dims}
		}
		r.blocks = append(r.blocks, b)
	}
	return x.checked(v, r)
}

// projection returns one projection of each expert, from a stack or individually, nil if it is missing.
func (x *matcher) projection(in, projection string, count int64) ([]piece, error) {
	t, err := x.look.find(in + "." + projection)
	if err != nil {
		return nil, err
	}
	list := make([]piece, count)
	if t != nil {
		if len(t.Dims) != 3 || t.Dims[0] != count {
			return nil, &mismatch{t.Name, t.Dims, []int64{count, -1, -1}}
		}
		for e := range list {
			list[e] = piece{t, int64(e) * t.Dims[1] * t.Dims[2], t.Dims[1], t.Dims[2], 0}
		}
		return list, nil
	}
	for _, holder := range []string{in, strings.TrimSuffix(in, ".mlp.experts") + ".block_sparse_moe.experts"} {
		for _, name := range []string{projection, others[projection]} {
			for e := range list {
				t, err := x.look.find(holder + "." + strconv.Itoa(e) + "." + name + ".weight")
				if err != nil {
					return nil, err
				}
				if t == nil || len(t.Dims) != 2 {
					break
				}
				list[e] = piece{t, 0, t.Dims[0], t.Dims[1], 0}
				if e == len(list)-1 {
					return list, nil
				}
			}
		}
	}
	return nil, nil
}
