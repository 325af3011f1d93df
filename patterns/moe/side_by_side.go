package moe

import "github.com/mojo-patch/mojo-patch/patterns/probe"

// sideBySide is a guess at which products, by number, hold the matrices of several experts as one: of all experts, or
// of those that each token goes to.
type sideBySide = map[int]probe.Parts

// guessesAt lists how the matrices of a second product and of its first ones may hold several experts, by their sizes:
// the width between an expert's products is that of a first result, or half of it if that holds gate and up.
func (p *expertProbe) guessesAt(a *probe.Product, width int) (list []sideBySide) {
	for _, n := range []int{int(p.reg.Routing.Experts), int(p.reg.Routing.K)} {
		for _, both := range []bool{false, true} {
			guess := sideBySide{}
			inner := width
			if both {
				inner /= n
				guess[a.Number] = probe.Parts{In: n}
			}
			for _, f := range a.First {
				if out := len(f.Row); out == n*inner || out == 2*n*inner {
					guess[f.Number] = probe.Parts{Out: n}
				}
			}
			if n > 1 && len(guess) > 0 && inner > 0 && (!both || width%n == 0) {
				list = append(list, guess)
			}
		}
	}
	return list
}

// askFirst asks for the listed experts. If the op has no such function between the products, the products may hold
// several experts side by side: it tries the guesses in turn.
func (p *expertProbe) askFirst(list []int) error {
	err := p.ask(list)
	for _, guess := range p.guesses {
		p.forget()
		if p.Parts = guess; p.ask(list) == nil {
			return nil
		}
	}
	p.Parts = nil
	return err
}
