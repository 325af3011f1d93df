package moe

import (
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/mojo-patch/mojo-patch/patterns/match"
	"github.com/mojo-patch/mojo-patch/patterns/probe"
	"github.com/mojo-patch/mojo-patch/reference"
)

// look runs the region to find the unit: the first products return samples.
func (p *expertProbe) look(chosen []int) error {
	amplitude := 9.0
	for _, x := range p.numbers {
		if 3*x > amplitude && x < 64 {
			amplitude = 3 * x
		}
	}
	p.Fill = func(a *probe.Product, out *reference.Tensor) error {
		samples := make([]float64, out.Shape[a.ResultOut])
		for c := range samples {
			samples[c] = sampleAt(a.Number+5*p.salt, c, amplitude)
		}
		return a.EachSum(func(r probe.Row, _ int, x float64) error {
			r.Add(out, func(c int) float64 { return x * samples[c] })
			return nil
		})
	}
	p.groups = map[int]*firstProducts{}
	p.Answer = func(a *probe.Product, _ *reference.Tensor) error {
		u, group, err := fit(a, p.activations, p.numbers, p.unit)
		switch {
		case err != nil:
			if p.Parts == nil {
				p.guesses = p.guessesAt(a, a.Data.Shape[a.DataIn])
			}
			return err
		case u == nil:
			return nil
		case p.unit == nil:
			p.unit = u
		case !p.unit.same(u):
			return probe.NoExperts("the experts have different activations: %s and %s",
				p.unit.describe(), u.describe())
		}
		g := &firstProducts{upFirst: u.upFirst, either: u.eitherFirst(a, group)}
		for _, f := range group {
			g.numbers = append(g.numbers, f.Number)
		}
		p.groups[a.Number] = g
		return nil
	}
	for range lookAgain {
		_, err := p.runWith(chosen, func(int) float64 { return 1 })
		if err != nil || p.settled() {
			return err
		}
		p.salt++
	}
	return nil
}

// settled decides groups whose samples do not distinguish gate from up by those that do, if these agree. It reports
// whether there are any of the latter.
func (p *expertProbe) settled() bool {
	told := map[bool]bool{}
	for _, g := range p.groups {
		if !g.either {
			told[g.upFirst] = true
		}
	}
	for _, g := range p.groups {
		if g.either && len(told) == 1 {
			g.upFirst = told[true]
		}
	}
	return len(told) > 0 || len(p.groups) == 0
}

// listen runs the region with answers, and records the answer for each expert.
func (p *expertProbe) listen(chosen []int) error {
	if p.unit == nil {
		return probe.NoExperts("no token reaches a product with constant weights")
	}
	p.Fill = func(a *probe.Product, out *reference.Tensor) error {
		return a.EachSum(func(r probe.Row, _ int, x float64) error {
			r.Add(out, func(int) float64 { return x })
			return nil
		})
	}
	p.Answer, p.seconds = p.speak, nil
	k := int(p.reg.Routing.K)
	y, err := p.runWith(chosen, p.factorOf)
	if err != nil {
		return err
	}
	if err := p.sameBiases(); err != nil {
		return err
	}
	width := match.Elements(y.Shape) / (len(chosen) / k)
	for t := range len(chosen) / k {
		answers, err := digits(y.F[t*width:(t+1)*width], k, p.base)
		if err != nil {
			return err
		}
		for j, a := range answers {
			e := chosen[t*k+j]
			if a > len(p.calls) {
				return probe.NoExperts(
					"expert %d returns a value that no product with weights computes, such as the token itself", e)
			}
			if p.answers[e] != unasked && p.answers[e] != a {
				return fmt.Errorf("expert %d: %w", e, errInconsistent)
			}
			p.answers[e] = a
		}
	}
	return nil
}

// digits reads the answers of a token's k experts from a row of the result.
func digits(row []float64, k int, base float64) ([]int, error) {
	answers := make([]int, k)
	n := min(len(row), probeBits)
	for c, x := range row {
		v := math.Round(x) / leastFactor
		is := math.Abs(x-v*leastFactor) <= 1e-3 && v >= 0 && v == math.Floor(v)
		for j := range answers {
			d := int(math.Mod(v, base))
			v = math.Floor(v / base)
			if is = is && d <= 1 && (c < n || d == answers[j]>>(c%n)&1); is && c < n {
				answers[j] |= d << c
			}
		}
		if !is {
			return nil, probe.NoExperts(
				"the result for a token is not the weighted sum of its experts' results")
		}
		if v != 0 {
			return nil, probe.NoExperts("the result for a token contains more than its experts' results")
		}
	}
	return answers, nil
}

// speak returns the answer of a second product: the bits of its number, times the factor of its data relative to the
// unit's result.
func (p *expertProbe) speak(a *probe.Product, out *reference.Tensor) error {
	if a.First = p.groupOf(a); len(a.First) == 0 { // no token comes here
		return nil
	}
	p.seconds = append(p.seconds, a)
	n := min(out.Shape[a.ResultOut], probeBits)
	places := a.Places()
	numbers := make([]int, places)
	for b := range places {
		number, err := p.number(a, b)
		if err != nil {
			return err
		}
		if bits.Len(uint(number)) > n {
			return probe.NoExperts("the graph has more experts than its %d channels can tell apart", n)
		}
		numbers[b] = number
	}
	return a.EachSum(func(r probe.Row, place int, x float64) error {
		f, err := p.factor(x)
		if f != 0 {
			r.Add(out, func(c int) float64 { return f * float64(numbers[place]>>(c%n)&1) })
		}
		return err
	})
}

// factor reads the factor of a row of the unit's results: one of the choice's factors, or one that was applied to the
// tokens. Most forms apply them later.
func (p *expertProbe) factor(x float64) (float64, error) {
	switch {
	case x == 0:
		return 0, nil
	case near(x, p.level(1)):
		return 1, nil
	}
	for j := range p.reg.Routing.K {
		f := p.factorOf(int(j))
		scaled := false
		switch {
		case near(x, f*p.level(1)):
		case near(x, p.level(f)):
			scaled = true
		default:
			continue
		}
		if p.heard && p.scaled != scaled {
			break
		}
		p.heard, p.scaled = true, scaled
		return f, nil
	}
	return 0, probe.NoExperts("other factors than the routing weights weight the experts")
}

// level returns the unit's result for a row of one number.
func (p *expertProbe) level(x float64) float64 {
	y, ok := p.levels[x]
	if !ok {
		y = p.unit.of(x, x)
		p.levels[x] = y
	}
	return y
}

// near compares numbers that depend on constants of a formula, which may be rounded.
func near(x, y float64) bool { return math.Abs(x-y) <= 2*unitTolerance*math.Abs(y) }

// factorOf returns the factor of the j-th expert of a token.
func (p *expertProbe) factorOf(j int) float64 { return leastFactor * math.Pow(p.base, float64(j)) }

// groupOf returns the first products that belong to a second one.
func (p *expertProbe) groupOf(a *probe.Product) []*probe.Product {
	var group []*probe.Product
	g := p.groups[a.Number]
	if g == nil {
		return nil
	}
	for _, number := range g.numbers {
		for _, f := range a.First {
			if f.Number == number {
				group = append(group, f)
			}
		}
	}
	return group
}

// number returns the number, from 1, of the expert that a second product computes at one place.
func (p *expertProbe) number(a *probe.Product, place int) (int, error) {
	var key strings.Builder
	write := func(m *probe.Matrix) {
		fmt.Fprintf(&key, "%p+%d:%dx%d,%d,%d;", m.Source, m.Offset, m.In, m.Out, m.ByIn, m.ByOut)
	}
	for _, f := range a.First {
		if f.Places() != 1 && f.Places() != a.Places() {
			return 0, probe.NoExperts("the two products of an expert have %d and %d matrices", f.Places(), a.Places())
		}
		write(f.Matrix(place))
		if b := f.BiasAt(place); b != nil {
			write(b)
		}
	}
	write(a.Matrix(place))
	number, ok := p.byKey[key.String()]
	if !ok {
		p.calls = append(p.calls, &call{a, place, p.groups[a.Number].upFirst})
		number = len(p.calls)
		p.byKey[key.String()] = number
	}
	return number, nil
}

// sameBiases checks that an expert computed at several places of the graph has the same bias there.
func (p *expertProbe) sameBiases() error {
	for _, a := range p.seconds {
		for place := range a.Places() {
			number, err := p.number(a, place)
			if err != nil {
				return err
			}
			c := p.calls[number-1]
			if x, y := a.BiasAt(place), c.down.BiasAt(c.place); (x == nil) != (y == nil) || x != nil && *x != *y {
				return probe.NoExperts("an expert has two biases")
			}
		}
	}
	return nil
}
