package patterns

import (
	"fmt"
	"math"
	"math/bits"
	"strings"

	"github.com/mojo-patch/mojo-patch/reference"
)

// look runs the region to find the unit: the first products give samples.
func (p *expertProbe) look(chosen []int) error {
	amplitude := 9.0
	for _, x := range p.numbers {
		if 3*x > amplitude && x < 64 {
			amplitude = 3 * x
		}
	}
	p.fill = func(a *applied, out *reference.Tensor) error {
		samples := make([]float64, out.Shape[a.resultOut])
		for c := range samples {
			samples[c] = sampleAt(a.number+5*p.salt, c, amplitude)
		}
		return a.eachSum(func(r resultRow, _ int, x float64) error {
			r.add(out, func(c int) float64 { return x * samples[c] })
			return nil
		})
	}
	p.groups = map[int]*firstProducts{}
	p.answer = func(a *applied, _ *reference.Tensor) error {
		u, group, err := fit(a, p.activations, p.numbers, p.unit)
		switch {
		case err != nil:
			return err
		case u == nil:
			return nil
		case p.unit == nil:
			p.unit = u
		case !p.unit.same(u):
			return noExperts("the experts do different things between their products: %s and %s", p.unit.describe(), u.describe())
		}
		g := &firstProducts{upFirst: u.upFirst, either: u.eitherFirst(a, group)}
		for _, f := range group {
			g.numbers = append(g.numbers, f.number)
		}
		p.groups[a.number] = g
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

// settled has groups whose samples do not tell gate from up follow those that do, if these agree. It says whether there are such.
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

// listen runs the region with answers, and takes note of which came for each expert.
func (p *expertProbe) listen(chosen []int) error {
	if p.unit == nil {
		return noExperts("no token comes to a product with constant weights")
	}
	p.fill = func(a *applied, out *reference.Tensor) error {
		return a.eachSum(func(r resultRow, _ int, x float64) error {
			r.add(out, func(int) float64 { return x })
			return nil
		})
	}
	p.answer = p.speak
	k := int(p.reg.routing.k)
	y, err := p.runWith(chosen, p.factorOf)
	if err != nil {
		return err
	}
	if err := p.sameBiases(); err != nil {
		return err
	}
	width := elements(y.Shape) / (len(chosen) / k)
	for t := range len(chosen) / k {
		answers, err := digits(y.F[t*width:(t+1)*width], k, p.base)
		if err != nil {
			return err
		}
		for j, a := range answers {
			e := chosen[t*k+j]
			if a > len(p.calls) {
				return noExperts("an answer that nobody gave")
			}
			if p.answers[e] != unasked && p.answers[e] != a {
				return fmt.Errorf("expert %d: %w", e, errInconsistent)
			}
			p.answers[e] = a
		}
	}
	return nil
}

// digits reads the answers of the k experts of a token in a row of the result.
func digits(row []float64, k int, base float64) ([]int, error) {
	answers := make([]int, k)
	n := min(len(row), probeBits)
	for c, x := range row {
		v := math.Round(x) / leastFactor
		if math.Abs(x-v*leastFactor) > 1e-3 || v < 0 || v != math.Floor(v) {
			return nil, noExperts("the result for a token is not the sum of what its experts give, times their weights")
		}
		for j := range answers {
			d := int(math.Mod(v, base))
			v = math.Floor(v / base)
			if d > 1 || c >= n && d != answers[j]>>(c%n)&1 {
				return nil, noExperts("the result for a token is not the sum of what its experts give, times their weights")
			}
			if c < n {
				answers[j] |= d << c
			}
		}
		if v != 0 {
			return nil, noExperts("the result for a token is more than what its experts give")
		}
	}
	return answers, nil
}

// speak returns the answer of a second product: its number in bits, times what its data are besides the unit.
func (p *expertProbe) speak(a *applied, out *reference.Tensor) error {
	if a.first = p.groupOf(a); len(a.first) == 0 { // no token comes here
		return nil
	}
	p.seconds = append(p.seconds, a)
	n := min(out.Shape[a.resultOut], probeBits)
	places := a.places()
	numbers := make([]int, places)
	for b := range places {
		number, err := p.number(a, b)
		if err != nil {
			return err
		}
		if bits.Len(uint(number)) > n {
			return noExperts("the graph holds more experts than the %d channels can tell apart", n)
		}
		numbers[b] = number
	}
	return a.eachSum(func(r resultRow, place int, x float64) error {
		f, err := p.factor(x)
		if f != 0 {
			r.add(out, func(c int) float64 { return f * float64(numbers[place]>>(c%n)&1) })
		}
		return err
	})
}

// factor reads what a row of the unit's results was multiplied with: one of the factors, or one that was applied to the tokens.
// Most forms apply them later.
func (p *expertProbe) factor(x float64) (float64, error) {
	switch {
	case x == 0:
		return 0, nil
	case near(x, p.level(1)):
		return 1, nil
	}
	for j := range p.reg.routing.k {
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
	return 0, noExperts("the experts are not weighted by the factors of the choice alone")
}

// level is what the unit makes of a row of one number.
func (p *expertProbe) level(x float64) float64 {
	y, ok := p.levels[x]
	if !ok {
		y = p.unit.of(x, x)
		p.levels[x] = y
	}
	return y
}

// near compares numbers that constants of a formula, which may be rounded, lead to.
func near(x, y float64) bool { return math.Abs(x-y) <= 2*unitTolerance*math.Abs(y) }

// factorOf is the factor of the j-th expert of a token.
func (p *expertProbe) factorOf(j int) float64 { return leastFactor * math.Pow(p.base, float64(j)) }

// resultRow is the elements of a product's result that lie along the axis of its channels: the first one, and the step between them.
type resultRow struct{ first, step, channels int }

// eachSum visits the rows of a product's result, with each matrix that it comes from, and the one number that all channels of the row
// of data have which the matrix is multiplied with.
func (a *applied) eachSum(visit func(r resultRow, place int, x float64) error) error {
	strides, shape := stridesOf(a.data.Shape), a.shape
	index, steps := make([]int, len(shape)), stridesOf(shape)
	last := (a.data.Shape[a.dataIn] - 1) * strides[a.dataIn]
	placeStrides, summed := a.summed(strides)
	for i := 0; i < elements(shape); i++ {
		for axis := range index {
			index[axis] = i / steps[axis] % shape[axis]
		}
		if index[a.resultOut] > 0 {
			if a.resultOut == len(shape)-1 {
				i += shape[a.resultOut] - 2 // to the end of the row
			}
			continue
		}
		at, fixed := 0, 0
		for axis, d := range a.rows {
			if d >= 0 && a.data.Shape[d] > 1 {
				at += index[axis] * strides[d]
			}
		}
		for k, axis := range a.resultBatch {
			if axis >= 0 {
				fixed += index[axis] * placeStrides[k]
			}
		}
		for _, sum := range summed {
			x := a.data.F[at+sum.data]
			if a.data.F[at+sum.data+last] != x {
				return noExperts("the channels of a token or of an expert are weighted one by one")
			}
			if err := visit(resultRow{i, steps[a.resultOut], shape[a.resultOut]}, fixed+sum.place, x); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds to the elements of a row.
func (r resultRow) add(out *reference.Tensor, of func(channel int) float64) {
	for c := range r.channels {
		out.F[r.first+c*r.step] += of(c)
	}
}

// placeAt is what a place of the axes that are added up adds to the number of a matrix, and to the place of the data.
type placeAt struct{ place, data int }

// summed lists the places of the axes of the weight that the result adds up, and gives the strides of all its axes of places.
func (a *applied) summed(dataStrides []int) (placeStrides []int, list []placeAt) {
	dims := make([]int, len(a.batch))
	for k, axis := range a.batch {
		dims[k] = int(a.weight.axes[axis].dim)
	}
	placeStrides, list = stridesOf(dims), []placeAt{{}}
	for k, axis := range a.resultBatch {
		if axis >= 0 {
			continue
		}
		step := 0
		if a.dataBatch[k] >= 0 {
			step = dataStrides[a.dataBatch[k]]
		}
		var next []placeAt
		for _, p := range list {
			for i := range dims[k] {
				next = append(next, placeAt{p.place + i*placeStrides[k], p.data + i*step})
			}
		}
		list = next
	}
	return placeStrides, list
}

func stridesOf(shape []int) []int {
	strides := make([]int, len(shape))
	for i, n := len(strides)-1, 1; i >= 0; i-- {
		strides[i] = n
		n *= shape[i]
	}
	return strides
}

// groupOf returns the first products that a second one belongs to.
func (p *expertProbe) groupOf(a *applied) []*applied {
	var group []*applied
	g := p.groups[a.number]
	if g == nil {
		return nil
	}
	for _, number := range g.numbers {
		for _, f := range a.first {
			if f.number == number {
				group = append(group, f)
			}
		}
	}
	return group
}

// number returns the number, from 1 on, of the expert that a second product stands for at one place.
func (p *expertProbe) number(a *applied, place int64) (int, error) {
	var key strings.Builder
	write := func(m *matrix) {
		fmt.Fprintf(&key, "%p+%d:%dx%d,%d,%d;", m.at.source, m.at.offset, m.in, m.out, m.byIn, m.byOut)
	}
	for _, f := range a.first {
		if f.places() != 1 && f.places() != a.places() {
			return 0, noExperts("the products of an expert have %d and %d matrices", f.places(), a.places())
		}
		write(f.matrix(place))
		if b := f.biasAt(place); b != nil {
			write(b)
		}
	}
	write(a.matrix(place))
	number, ok := p.byKey[key.String()]
	if !ok {
		p.calls = append(p.calls, &call{a, place, p.groups[a.number].upFirst})
		number = len(p.calls)
		p.byKey[key.String()] = number
	}
	return number, nil
}

// sameBiases makes sure that an expert that is called at several places of the graph has one bias there.
func (p *expertProbe) sameBiases() error {
	for _, a := range p.seconds {
		for place := range a.places() {
			number, err := p.number(a, place)
			if err != nil {
				return err
			}
			c := p.calls[number-1]
			if x, y := a.biasAt(place), c.down.biasAt(c.place); (x == nil) != (y == nil) || x != nil && *x != *y {
				return noExperts("an expert has two biases")
			}
		}
	}
	return nil
}
