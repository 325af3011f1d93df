package dims

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mojo-patch/mojo-patch/reference"
)

// choice is the result of the analysis: one variant of each dimension, and their joint reading.
type choice struct {
	*reading
	variants []*variant
	recorded []int64 // largest recorded size of each dimension that the choice reproduces, or 0
	window   int64   // the window that recorded outputs show, or 0
	unlike   bool    // whether it runs, but does not reproduce recorded outputs
}

// mostChoices bounds the combinations of variants that are tried.
const mostChoices = 64

// choose finds the single joint reading of all dimensions.
func (a *analysis) choose() (*choice, error) {
	if err := a.findSizes(); err != nil {
		return nil, err
	}
	err := a.resolve()
	if err == nil {
		err = a.learn()
	}
	switch {
	case errors.Is(err, errSteps):
		return nil, err
	case err != nil:
		return nil, &Refusal{a.names(), "", fmt.Sprintf("the model does not run at the sizes of the export: %v", err)}
	}
	samples, err := a.samples()
	if err != nil {
		return nil, err
	}
	lists := make([][]*variant, len(a.dims))
	for i := range a.dims {
		if lists[i], err = a.search(i).variants(); err != nil {
			return nil, err
		}
		if list := lists[i]; list[0].rows {
			for at := range list[0].factors {
				a.rows[at] = true
			}
		}
	}
	var kept []*choice
	var failed error
	for combination := range combinations(lists) {
		c := &choice{variants: combination}
		err := a.together(c, samples)
		if c.unlike {
			if other := a.windows(c, samples); other != errUnlike {
				err = other
			}
		}
		if errors.Is(err, errSteps) {
			return nil, err
		}
		if err != nil {
			failed = err
			continue
		}
		kept = append(kept, c)
	}
	if len(kept) == 0 {
		return nil, failed
	}
	for i, list := range lists {
		var left []*variant
		for _, v := range list {
			if slices.ContainsFunc(kept, func(c *choice) bool { return c.variants[i] == v }) &&
				(len(left) == 0 || !sameOutputs(left[0].outputs, v.outputs)) {
				left = append(left, v)
			}
		}
		if len(left) > 1 {
			return nil, a.ambiguous(i, left)
		}
	}
	if err := a.settled(kept[0]); err != nil {
		return nil, err
	}
	return kept[0], a.attributes(kept[0])
}

// findSizes takes undeclared sizes at export from the first recorded case with which the model runs.
func (a *analysis) findSizes() error {
	missing := slices.IndexFunc(a.dims, func(d *Dim) bool { return d.Size == 0 })
	if missing < 0 {
		return nil
	}
	samples, err := a.samples()
	if err != nil {
		return err
	}
	for _, s := range samples {
		if x := a.run(&reading{}, s.sizes, s.in); x.err != nil {
			continue
		}
		for i, d := range a.dims {
			if d.Size != 0 && d.Size != s.sizes[i] {
				return &Refusal{d.Name, "", fmt.Sprintf("it is %d at export, but a recorded case that the model runs "+
					"with has %d", d.Size, s.sizes[i])}
			}
			d.Size = s.sizes[i]
		}
		return nil
	}
	name := a.dims[missing].Name
	if a.runsAnyway() {
		return &Refusal{name, "",
			fmt.Sprintf("the model already runs at several sizes; to find numbers that come from its "+
				"size at export anyway, write %s=SIZE, or pass recorded outputs of the export", name)}
	}
	return &Refusal{name, "",
		fmt.Sprintf("its size at export is not known; write %s=SIZE, or pass recorded outputs of "+
			"the export", name)}
}

// runsAnyway reports whether the model runs at several sizes of dimensions with unknown sizes at export.
func (a *analysis) runsAnyway() bool {
	for try := range int64(3) {
		sizes := a.exported()
		for i, n := range sizes {
			if n == 0 {
				sizes[i] = 2 + try + int64(i)%2*try
			}
		}
		in, err := a.inputs(1, sizes)
		if err != nil || a.run(&reading{}, sizes, in).err != nil {
			return false
		}
	}
	return true
}

// combinations lists all ways to choose one variant of each dimension.
func combinations(lists [][]*variant) func(yield func([]*variant) bool) {
	return func(yield func([]*variant) bool) {
		at := make([]int, len(lists))
		for range mostChoices {
			taken := make([]*variant, len(lists))
			for i, k := range at {
				taken[i] = lists[i][k]
			}
			if !yield(taken) {
				return
			}
			i := 0
			for ; i < len(at); i++ {
				if at[i]++; at[i] < len(lists[i]) {
					break
				}
				at[i] = 0
			}
			if i == len(at) {
				return
			}
		}
	}
}

// together joins the readings of all dimensions, and tries the result at several changed sizes.
func (a *analysis) together(c *choice, samples []*sample) error {
	c.reading = &reading{factors: map[slot][]rat{}, product: map[slot]bool{}}
	for i, v := range c.variants {
		for s, f := range v.factors {
			if f[i].num != 0 {
				c.reading = c.with(i, len(a.dims), map[slot]rat{s: f[i]})
			}
		}
	}
	var shared []slot // depend on more than one dimension
	for s, list := range c.factors {
		count, all := 0, rat{1, 1}
		for _, f := range list {
			if f.num != 0 {
				count++
				all = ratio(all.num*f.num, all.den*f.den)
			}
		}
		if count < 2 {
			continue
		}
		shared = append(shared, s)
		if e := a.constantOf(s).original(s); e != 0 && s.part != diagonal {
			c.product[s] = count > 2 || ratio(all.num, all.den*e).den == 1
		}
	}
	err := a.tryTogether(c)
	for i := 0; err != nil && i <= len(shared) && !errors.Is(err, errSteps); i++ { // a product or a sum?
		before := maps.Clone(c.product)
		for k, s := range shared {
			if k == i || i == len(shared) {
				c.product[s] = !c.product[s]
			}
		}
		if e := a.tryTogether(c); e == nil {
			err = nil
		} else {
			c.product = before
		}
	}
	if err != nil {
		return err
	}
	c.recorded = make([]int64, len(a.dims))
	for _, s := range samples {
		ok, err := a.reproduces(c, s)
		if err != nil {
			return err
		}
		if c.unlike = !ok; !ok {
			name := a.names()
			for i, n := range s.sizes { // the dimension that differs, if it is a single one
				if x := a.sizes(i, n); slices.Equal(x, s.sizes) && n != a.dims[i].Size {
					name = a.dims[i].Name
				}
			}
			return &Refusal{name, "", "no choice of constants reproduces the recorded outputs of " +
				a.sizesText(s.sizes)}
		}
		for i, n := range s.sizes {
			c.recorded[i] = max(c.recorded[i], n)
		}
	}
	return nil
}

// jointSizes returns sizes at which all dimensions differ from the export.
func (a *analysis) jointSizes() (list [][]int64) {
	for _, by := range []func(i int, n int64) int64{
		func(i int, n int64) int64 { return n + int64(i) + 1 },
		func(i int, n int64) int64 { return max(1, n-int64(i)-1) },
		func(i int, n int64) int64 { return n * int64(i+2) },
		func(i int, n int64) int64 { return n*3 + int64(len(a.dims)-i) },
	} {
		sizes := make([]int64, len(a.dims))
		for i, d := range a.dims {
			sizes[i] = by(i, d.Size)
		}
		list = append(list, sizes)
	}
	return list
}

// tryTogether runs a choice at sizes that all differ, and at the test sizes of one dimension. If a dimension determines
// rows, it must also determine them while others have other sizes.
func (a *analysis) tryTogether(c *choice) error {
	if len(a.dims) == 1 {
		return nil
	}
	list, ran := a.jointSizes(), 0
	several := len(list)
	for i, d := range a.dims {
		for _, n := range tests(d.Size) {
			list = append(list, a.sizes(i, n))
		}
	}
	for k, sizes := range list {
		in, err := a.inputs(5, sizes)
		if err != nil {
			return err
		}
		x := a.run(c.reading, sizes, in)
		if errors.Is(x.err, errSteps) {
			return x.err
		}
		if errors.Is(x.err, errFraction) || x.err != nil && (k >= several || slices.Min(sizes) < a.least()) {
			continue
		}
		if x.err != nil {
			return &Refusal{a.names(), x.node.Label(), fmt.Sprintf("at %s: %v", a.sizesText(sizes), x.err)}
		}
		if k < several {
			ran++
		}
		for i, v := range c.variants {
			if !v.rows {
				continue
			}
			if err := a.rowsStay(c, i, sizes, in, x.outputs); err != nil {
				return err
			}
		}
	}
	if ran == 0 {
		return &Refusal{a.names(), "", "the model does not run at any other combination of their sizes"}
	}
	return nil
}

// least returns the smallest size at export.
func (a *analysis) least() int64 {
	return slices.MinFunc(a.dims, func(x, y *Dim) int { return int(x.Size - y.Size) }).Size
}

// rowsStay returns an error unless the rows of a dimension depend only on their own inputs: a change of the last input
// row leaves all other rows unchanged, and computing only as many rows as at export returns the same ones.
func (a *analysis) rowsStay(c *choice, dim int, sizes []int64, in map[string]*reference.Tensor,
	got []*reference.Tensor) error {
	e, n, most := c.variants[dim].evidence, a.dims[dim].Size, sizes[dim]
	mixed := &Refusal{a.names(), "", "rows computed one at a time differ from rows computed together at " +
		a.sizesText(sizes)}
	if most > 1 {
		other, err := a.inputs(6, sizes)
		if err != nil {
			return err
		}
		x := a.run(c.reading, sizes, e.mixed(in, other, int(most-1)))
		if x.err != nil || !e.agreeRows(got, x.outputs, 0, 0, int(most-1)) {
			return mixed
		}
	}
	if most <= n {
		return nil
	}
	few := slices.Clone(sizes)
	few[dim] = n
	for _, from := range []int64{0, most - n} {
		x := a.run(c.reading, few, e.window(in, int(from), int(from+n)))
		if x.err != nil || !e.agreeRows(x.outputs, got, 0, int(from), int(n)) {
			return mixed
		}
	}
	return nil
}

func (a *analysis) names() string {
	text := ""
	for i, d := range a.dims {
		if text += d.Name; i < len(a.dims)-1 {
			text += " and "
		}
	}
	return text
}

func (a *analysis) sizesText(sizes []int64) string {
	text := ""
	for i, d := range a.dims {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s %d", d.Name, sizes[i])
	}
	return text
}

// listed returns inputs in the order of the model's.
func (a *analysis) listed(in map[string]*reference.Tensor) (list []*reference.Tensor) {
	for _, v := range a.model.Graph.Inputs {
		list = append(list, in[v.Name])
	}
	return list
}
