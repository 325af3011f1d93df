package shard

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/reference"
	"github.com/mojo-patch/mojo-patch/reference/infer"
)

// Experts selects how the experts of a mixture are divided.
type Experts string

// Split divides the width of every expert. Spread gives each rank whole experts, and is Split for fewer experts than
// ranks.
const (
	Split  Experts = "split"
	Spread Experts = "spread"
)

// Options describe a division.
type Options struct {
	// Ranks is the number of ranks, at least 1.
	Ranks   int64
	Experts Experts
	// Least is the size in bytes from which a weight is divided that needs an additional collective operation, such as
	// an embedding or a head.
	Least int64
	// Form is Mojo if it is "".
	Form Form
	// Edited is a plan that people may have deleted blocks from, or nil: only the blocks that it names are divided.
	Edited *Plan
}

// A Plan says how a model is divided over ranks. Blocks, Inputs, Outputs and Whole describe it for reports; the plan
// file is their JSON.
type Plan struct {
	Schema  int     `json:"schema"`
	Ranks   int64   `json:"ranks"`
	Experts Experts `json:"experts"`
	// Form says which runtime the models of ranks are for.
	Form Form `json:"form"`
	// Least is the size in bytes from which weights with additional operations were divided.
	Least int64 `json:"collective_over"`
	// Digest is equal for the models of one division. The kernels of collective operations compare it.
	Digest string  `json:"digest"`
	Blocks []Block `json:"blocks"`
	// Inputs and Outputs are those of which each rank has a part: caches, by heads.
	Inputs  []Port `json:"inputs"`
	Outputs []Port `json:"outputs"`
	// Whole are the constants that every rank has, largest first, except small ones.
	Whole []Constant `json:"whole"`
	// Undivided has the reasons of attention that every rank computes whole, by node.
	Undivided map[string]string `json:"undivided"`
	// Bytes is the size of a rank's constants, Before that of the whole model's.
	Bytes  int64 `json:"bytes"`
	Before int64 `json:"bytes_before"`
	Cost   Cost  `json:"cost"`

	model  *onnx.Model
	facts  *infer.Facts
	blocks []*block
	cut    map[onnx.Use]Layout // of all blocks
	once   map[onnx.Use]bool
}

// Schema is the version of the plan file.
const Schema = 1

// A Block is a part of the graph that is divided.
type Block struct {
	// Nodes is the number of nodes, First and Last are the names of two.
	Nodes int    `json:"nodes"`
	First string `json:"first"`
	Last  string `json:"last"`
	// Weights are the divided constants.
	Weights []Weight `json:"weights"`
	// Collectives are the operations that join the parts.
	Collectives []Collective `json:"collectives"`
	// Saved is the number of bytes of weights that a rank does not read for a token, because it has a part.
	Saved int64 `json:"read_bytes_saved"`
	// Proof describes how the ranks were compared with the whole, or begins with Assumed.
	Proof string `json:"proof"`
}

// A Weight is a divided constant.
type Weight struct {
	Name string `json:"name"`
	Layout
	// Once reports that rank 0 has the constant, and the others have zeros.
	Once bool `json:"once,omitempty"`
}

// A Port is an input or output of which each rank has a part.
type Port struct {
	Name string `json:"name"`
	Layout
}

// A Collective is an operation of all ranks.
type Collective struct {
	Op    string `json:"op"`
	Value string `json:"value"`
	// Bytes is the size of the result for one token, 0 if unknown.
	Bytes int64 `json:"bytes_per_token"`
}

// A Constant is one that every rank has whole.
type Constant struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	Reason string `json:"reason,omitempty"`
}

// ErrNothing is the error of New for a model of which nothing can be divided.
var ErrNothing = errors.New("nothing of the model can be divided")

// New finds the blocks of a patched model that can be divided over the ranks, evaluates all ranks of each together, and
// compares them with the whole. A block that differs stays whole, and Whole has the reason. The model must not change
// while the plan is used.
func New(m *onnx.Model, o Options) (*Plan, error) {
	switch {
	case o.Ranks < 1:
		return nil, fmt.Errorf("%d ranks: there must be at least 1", o.Ranks)
	case o.Experts != Split && o.Experts != Spread:
		return nil, fmt.Errorf("experts are divided by %q; there are %s and %s", o.Experts, Split, Spread)
	case o.Form != "" && o.Form != Mojo && o.Form != TensorRT:
		return nil, fmt.Errorf("the form of collective operations is %q; there are %s and %s", o.Form, Mojo, TensorRT)
	}
	p := &Plan{Schema: Schema, Ranks: o.Ranks, Experts: o.Experts, Form: cmp.Or(o.Form, Mojo), Least: o.Least,
		Blocks: []Block{}, Inputs: []Port{}, Outputs: []Port{}, Whole: []Constant{},
		Undivided: map[string]string{}, model: m, facts: infer.Analyze(m)}
	f := newFinder(m, p.facts, o)
	f.find()
	if o.Edited != nil {
		var err error
		if f.blocks, err = f.chosen(o.Edited); err != nil {
			return nil, err
		}
		f.blocks = agreed(f.blocks, f.reasons)
	}
	proofs, proven := newProofs(m, p.facts), map[*block]string{}
	for _, b := range f.blocks {
		proof, err := proofs.prove(b)
		if err != nil {
			for u := range b.weights {
				f.reasons[u.Node.Inputs[u.Index]] = err
			}
			continue
		}
		proven[b] = proof
		p.blocks = append(p.blocks, b)
	}
	p.blocks = agreed(p.blocks, f.reasons)
	for _, b := range p.blocks {
		p.Blocks = append(p.Blocks, p.describe(b, proven[b]))
	}
	p.cut, p.once = map[onnx.Use]Layout{}, map[onnx.Use]bool{}
	for _, b := range p.blocks {
		maps.Copy(p.cut, b.weights)
		maps.Copy(p.once, b.once)
	}
	p.count(f.reasons)
	for _, n := range f.nodes {
		if err := f.undivided(n, p.blocks); err != nil {
			p.Undivided[n.Label()] = err.Error()
		}
	}
	p.estimate()
	if len(p.blocks) == 0 && o.Ranks > 1 {
		for _, n := range m.Graph.Nodes {
			if len(n.Subgraphs()) > 0 && !n.Is("If") {
				return nil, fmt.Errorf("%w: node %q (%s) holds other graphs, which are not divided", ErrNothing,
					n.Label(), n.OpType)
			}
		}
		if len(p.Whole) > 0 && p.Whole[0].Reason != "" {
			return nil, fmt.Errorf("%w: %s", ErrNothing, p.Whole[0].Reason)
		}
		return nil, ErrNothing
	}
	return p, p.digest()
}

// sampled is the number of elements of each constant that the digest contains.
const sampled = 16

// digest makes the digest: its first half from the plan, and its second half from the first elements of each constant,
// so that the ranks of a model and of a fine-tuned one differ, without reading all weights.
func (p *Plan) digest() error {
	own, err := p.ownDigest()
	if err != nil {
		return err
	}
	hash := sha256.New()
	for _, v := range p.model.Graph.Initializers() {
		t := v.Const
		fmt.Fprintln(hash, v.Name, t.DataType, t.Dims)
		if t.DataType.Bits()%8 != 0 || t.DataType.Bits() == 0 || t.IsStreamed() && t.Size() > listed {
			continue // its elements cannot be read one by one
		}
		first := make([]byte, min(t.Len(), sampled)*int64(t.DataType.Bits())/8)
		if err := t.ReadElements(first, 0); err != nil {
			return err
		}
		hash.Write(first)
	}
	p.Digest = own + hex.EncodeToString(hash.Sum(nil)[:8])
	return nil
}

// ownDigest returns the part of the digest that is made from the plan.
func (p *Plan) ownDigest() (string, error) {
	c := *p
	c.Digest = ""
	text, err := json.Marshal(&c)
	hash := sha256.Sum256(text)
	return hex.EncodeToString(hash[:8]), err
}

// Model returns the model of one rank. Its constants are views of the whole model's, which must stay open.
func (p *Plan) Model(rank int64) (*onnx.Model, error) {
	if rank < 0 || rank >= p.Ranks {
		return nil, fmt.Errorf("rank %d: the plan has the ranks 0 to %d", rank, p.Ranks-1)
	}
	m, err := p.model.Clone()
	if err != nil {
		return nil, err
	}
	w := &builder{model: m, facts: p.facts.DataType, rank: rank, ranks: p.Ranks, digest: p.Digest,
		form: p.Form, graphs: map[*onnx.Graph]*onnx.Graph{}}
	copies := m.Graphs()
	for i, g := range p.model.Graphs() {
		w.graphs[g] = copies[i]
	}
	if err := w.build(p.blocks); err != nil {
		return nil, fmt.Errorf("rank %d: %w", rank, err)
	}
	return m, nil
}

// Evaluate runs all ranks together on the inputs of the whole model, and returns its outputs.
func (p *Plan) Evaluate(o reference.Options, inputs map[string]*reference.Tensor) (map[string]*reference.Tensor,
	error) {
	models := make([]*onnx.Model, p.Ranks)
	for rank := range models {
		var err error
		if models[rank], err = p.Model(int64(rank)); err != nil {
			return nil, err
		}
	}
	return onParts(models, o, inputs, layouts(p.Inputs), layouts(p.Outputs))
}

// layouts returns the layouts of ports by name.
func layouts(ports []Port) map[string]Layout {
	m := make(map[string]Layout, len(ports))
	for _, port := range ports {
		m[port.Name] = port.Layout
	}
	return m
}

// describe returns a block for reports.
func (p *Plan) describe(b *block, proof string) Block {
	nodes := b.inOrder()
	r := Block{Nodes: len(nodes), First: nodes[0].Label(), Last: nodes[len(nodes)-1].Label(), Weights: []Weight{},
		Collectives: []Collective{}, Proof: proof}
	for _, n := range nodes {
		for i, v := range n.Inputs {
			u := onnx.Use{Node: n, Index: i}
			if l, ok := b.weights[u]; ok {
				r.Weights = append(r.Weights, Weight{Name: v.Name, Layout: l})
			} else if b.once[u] {
				r.Weights = append(r.Weights, Weight{Name: v.Name, Once: true})
			}
		}
		for _, v := range n.Outputs {
			if v == nil {
				continue
			}
			l, held := b.held[v]
			switch {
			case b.sums[v]:
				op := fused.AllReduceName
				if u := v.Uses(); len(u) == 1 && !v.IsOutput() && reducesInNorm(u[0]) &&
					p.Form == Mojo {
					op = fused.AllReduceAddRMSNormName
				}
				r.Collectives = append(r.Collectives, Collective{op, v.Name, p.perToken(v)})
			case held && b.isPresent(v):
				for _, y := range b.results(v) {
					p.Outputs = addPort(p.Outputs, Port{y.Name, l})
				}
			case held && b.isGathered(v):
				r.Collectives = append(r.Collectives, Collective{fused.AllGatherName, v.Name, p.perToken(v)})
			}
		}
	}
	for _, v := range p.model.Graph.Inputs {
		if l, held := b.held[v]; held {
			p.Inputs = addPort(p.Inputs, Port{v.Name, l})
		}
	}
	return r
}

// addPort adds a port that another branch may have added.
func addPort(ports []Port, port Port) []Port {
	if slices.ContainsFunc(ports, func(p Port) bool { return p.Name == port.Name }) {
		return ports
	}
	return append(ports, port)
}

// perToken returns the bytes of a value's last axis.
func (p *Plan) perToken(v *onnx.Value) int64 {
	size, ok := p.facts.Dim(v, -1)
	if !ok {
		return 0
	}
	return size * int64(p.facts.DataType(v).Bits()) / 8
}

// listed is the size in bytes up to which constants that stay whole are not listed.
const listed = 4096

// count counts the bytes of a rank and lists the constants that stay whole.
func (p *Plan) count(reasons map[*onnx.Value]error) {
	for _, v := range p.model.Graph.Initializers() {
		size := v.Const.Size()
		p.Before += size
		readers, part, once := 0, int64(0), false
		for _, u := range v.Uses() {
			if l, ok := p.cut[u]; ok {
				readers++
				part = l.largest(size, p.Ranks)
			} else if p.once[u] {
				readers++
				once = true
			}
		}
		switch whole := readers < len(v.Uses()) || readers == 0; {
		case !whole && once:
			p.Bytes += size
		case !whole:
			p.Bytes += part
		default:
			p.Bytes += size + part
			if size > listed {
				c := Constant{Name: v.Name, Bytes: size}
				if err := reasons[v]; err != nil {
					c.Reason = err.Error()
				}
				p.Whole = append(p.Whole, c)
			}
		}
	}
	slices.SortStableFunc(p.Whole, func(a, b Constant) int { return int(min(max(b.Bytes-a.Bytes, -1), 1)) })
}
