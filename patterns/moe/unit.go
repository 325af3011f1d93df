package moe

import (
	"fmt"
	"math"
	"slices"

	"github.com/mojo-patch/mojo-patch/fused"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
)

// unit is the function of an expert between its first products and its second: the attributes of mojo.MoE, and which
// product is the gate.
type unit struct {
	activation           string
	alpha, limit, offset float64
	packing              string // also "halves" for two products
	upFirst              bool   // up is the first half, the first of each pair, or the first product
}

// op returns mojo.MoE with its attributes and the given layouts of weights.
func (u *unit) op(gateUp, down string) fused.MoE {
	gate := fused.GLU{Activation: u.activation, Alpha: float32(u.alpha), Limit: float32(u.limit),
		UpOffset: float32(u.offset)}
	return fused.MoE{GLU: gate, Packing: u.packing, GateUpLayout: gateUp, DownLayout: down}
}

func (u *unit) describe() string {
	return fmt.Sprintf("%s with alpha %v, limit %v, up_offset %v, packing %s", u.activation, u.alpha, u.limit, u.offset,
		u.packing)
}

// same reports whether two units are equal, whichever operand comes first.
func (u *unit) same(v *unit) bool {
	a, b := *u, *v
	a.upFirst, b.upFirst = false, false
	return a == b
}

const (
	// unitSamples is the number of channels on which units are distinguished.
	unitSamples = 48
	// unitTolerance is the relative error that float16 constants in a formula explain.
	unitTolerance = 2e-3
	// unitNumbers bounds the constants of a region that may be an alpha, a limit or an offset.
	unitNumbers = 10
)

// sampleAt returns channel i of the seq-th first product of an expert, in the run that looks for the unit. Only every
// third channel is large: products whose results are all clamped cannot be distinguished.
func sampleAt(seq, i int, amplitude float64) float64 {
	for range (seq + i + i/9) % 3 {
		amplitude /= 6
	}
	return amplitude * math.Sin(1.7*float64(i+1)+2.3*float64(seq)+0.31*float64(i*i%17))
}

// numbersIn lists the scalar floating-point constants that nodes of the region and its subgraphs read.
func numbersIn(g *match.View, r *Region) []float64 {
	var list []float64
	r.eachNode(func(n *onnx.Node) {
		for _, v := range n.Inputs {
			x, t, ok := g.Scalar(v)
			if ok && t.IsFloat() && math.Abs(x) < 1e4 && x != 0 && !slices.Contains(list, x) &&
				len(list) < unitNumbers {
				list = append(list, x)
			}
		}
	})
	return list
}

// activationsIn lists the activations of mojo.MoE that the experts of a region may have. Samples on a few channels may
// not distinguish the two GELUs if constants are as coarse as half types, but the presence of an Erf or a Tanh does.
func activationsIn(r *Region) []string {
	seen := map[string]bool{}
	r.eachNode(func(n *onnx.Node) {
		seen[n.OpType] = true
		if !onnx.IsStandardDomain(n.Domain) || n.Is("Gelu") {
			seen["Erf"], seen["Tanh"] = true, true // either one
		}
	})
	return slices.DeleteFunc(slices.Clone(unitActivations()), func(name string) bool {
		return name == "gelu" && seen["Tanh"] && !seen["Erf"] || name == "gelu_tanh" && seen["Erf"] && !seen["Tanh"]
	})
}

// units lists all units of a packing that the activations and constants of a region may form; with a guess, only the
// guess.
func units(activations []string, numbers []float64, packing unit, guess *unit) []*unit {
	if guess != nil {
		if guess.packing != packing.packing {
			return nil
		}
		u := *guess
		u.upFirst = packing.upFirst
		return []*unit{&u}
	}
	positive := slices.DeleteFunc(slices.Clone(numbers), func(x float64) bool { return x < 0 })
	var list []*unit
	for _, activation := range activations {
		alphas, limits, offsets := []float64{1}, []float64{0}, []float64{0}
		if activation == "silu" {
			alphas = append(alphas, positive...)
		}
		if packing.packing != "none" {
			limits = append(limits, positive...)
			offsets = append(offsets, numbers...)
		}
		for _, alpha := range alphas {
			for _, limit := range limits {
				for _, offset := range offsets {
					u := packing
					u.activation, u.alpha, u.limit, u.offset = activation, alpha, limit, offset
					list = append(list, &u)
				}
			}
		}
	}
	return list
}

// trial is a unit that may compute a row from some of the first products.
type trial struct {
	unit  *unit
	at    []int   // indexes of the first products
	worst float64 // the greatest relative error
}

const (
	// up to fewTrials trials, each is evaluated on all channels at once.
	fewTrials = 64
	// maxTrials bounds the trials held at a time.
	maxTrials = 1 << 15
)

// fit finds the unit that computes the data of a second product from first ones, and which ones these are: there are
// more if the rows of several experts go through one unit. Of the possible units it takes the one that fits best. It
// returns nil if no row shows the unit.
func fit(a *probe.Product, activations []string, numbers []float64, guess *unit) (*unit, []*probe.Product, error) {
	row := probe.RowOf(a.Data, a.DataIn)
	if row == nil {
		return nil, nil, nil
	}
	sources := make([][]float64, len(a.First))
	for i, f := range a.First {
		sources[i] = f.Row
	}
	best := &trial{worst: unitTolerance}
	var trials []*trial
	flush := func() {
		if len(trials) > fewTrials {
			errorsOn(row, sources, trials, 1)
			trials = slices.DeleteFunc(trials, func(t *trial) bool { return !(t.worst < best.worst) })
		}
		errorsOn(row, sources, trials, unitSamples)
		for _, t := range trials {
			if t.worst < best.worst {
				best = t
			}
		}
		trials = nil
	}
	made := map[unit][]*unit{} // by packing
	try := func(at ...int) {
		var group [][]float64
		for _, i := range at {
			if sources[i] == nil {
				return
			}
			group = append(group, sources[i])
		}
		for _, p := range packingsOf(group, len(row)) {
			if made[p] == nil {
				made[p] = units(activations, numbers, p, guess)
			}
			for _, u := range made[p] {
				trials = append(trials, &trial{unit: u, at: at})
			}
		}
		if len(trials) >= maxTrials {
			flush()
		}
	}
	tryAll := func() {
		for i := range sources {
			try(i)
		}
		for i := range sources {
			for j := range i {
				try(j, i)
			}
		}
		flush()
	}
	if tryAll(); best.unit == nil && guess != nil {
		guess = nil
		clear(made)
		tryAll()
	}
	if best.unit == nil {
		return nil, nil, probe.NoExperts("mojo.MoE does not have the activation between the products of an expert")
	}
	var group []*probe.Product
	for _, i := range best.at {
		group = append(group, a.First[i])
	}
	return best.unit, group, nil
}

// packingsOf lists how gate and up may be packed in the results of first products, for a unit of the given width.
func packingsOf(sources [][]float64, width int) []unit {
	n := len(sources[0])
	switch {
	case len(sources) == 2 && n == width && len(sources[1]) == width:
		return []unit{{packing: "halves"}, {packing: "halves", upFirst: true}}
	case len(sources) == 1 && n == 2*width:
		return []unit{{packing: "halves"}, {packing: "interleaved"}, {packing: "halves", upFirst: true},
			{packing: "interleaved", upFirst: true}}
	case len(sources) == 1 && n == width:
		return []unit{{packing: "none"}}
	}
	return nil
}

// errorsOn finds the greatest relative error of each trial on the first channels of a row.
func errorsOn(row []float64, sources [][]float64, trials []*trial, channels int) {
	channels = min(channels, len(row))
	points := make([]point, 0, len(trials)*channels)
	for _, t := range trials {
		var group [][]float64
		for _, i := range t.at {
			group = append(group, sources[i])
		}
		for c := range channels {
			gate, up := t.unit.operands(group, c)
			points = append(points, point{t.unit, gate, up})
		}
	}
	for i, want := range evaluate(points) {
		t, c := trials[i/channels], i%channels
		t.worst = max(t.worst, math.Abs(row[c]-want)/(1+math.Abs(want)))
	}
}

// eitherFirst reports whether the unit also fits with gate and up exchanged.
func (u *unit) eitherFirst(a *probe.Product, group []*probe.Product) bool {
	if u.packing == "none" {
		return false
	}
	v := *u
	v.upFirst = !u.upFirst
	t := &trial{unit: &v}
	var rows [][]float64
	for i, f := range group {
		t.at, rows = append(t.at, i), append(rows, f.Row)
	}
	errorsOn(probe.RowOf(a.Data, a.DataIn), rows, []*trial{t}, unitSamples)
	return t.worst < unitTolerance
}

// operands returns gate and up of channel c.
func (u *unit) operands(sources [][]float64, c int) (gate, up float64) {
	s := sources[0]
	switch {
	case u.packing == "none":
		return s[c], 0
	case len(sources) == 2:
		gate, up = s[c], sources[1][c]
	case u.packing == "halves":
		gate, up = s[c], s[c+len(s)/2]
	default:
		gate, up = s[2*c], s[2*c+1]
	}
	if u.upFirst {
		return up, gate
	}
	return gate, up
}
