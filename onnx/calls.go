package onnx

import "fmt"

// functionKey identifies a model-local function, with one spelling of the standard domain.
type functionKey struct{ domain, name, overload string }

func keyOf(domain, name, overload string) functionKey {
	if IsStandardDomain(domain) {
		domain = ""
	}
	return functionKey{domain, name, overload}
}

func (f *Function) key() functionKey { return keyOf(f.Domain, f.Name, f.Overload) }

func (m *Model) functionsByKey() map[functionKey]*Function {
	functions := make(map[functionKey]*Function, len(m.Functions))
	for _, f := range m.Functions {
		functions[f.key()] = f
	}
	return functions
}

// checkCalls returns an error if functions call themselves, directly or through others: inlining would not end.
func (m *Model) checkCalls() error {
	functions := m.functionsByKey()
	const (
		open = 1 // calls are being followed
		done = 2
	)
	state := map[*Function]int{}
	type frame struct {
		f     *Function
		calls []*Function
	}
	for _, start := range m.Functions {
		if state[start] != 0 {
			continue
		}
		state[start] = open
		stack := []frame{{start, callsIn(start.Body, functions)}}
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			if len(top.calls) == 0 {
				state[top.f] = done
				stack = stack[:len(stack)-1]
				continue
			}
			f := top.calls[0]
			top.calls = top.calls[1:]
			switch state[f] {
			case open:
				return fmt.Errorf("function %s.%s (overload %q) calls itself, at the end through %s.%s", f.Domain,
					f.Name, f.Overload, top.f.Domain, top.f.Name)
			case 0:
				state[f] = open
				stack = append(stack, frame{f, callsIn(f.Body, functions)})
			}
		}
	}
	return nil
}

// callsIn lists the model-local functions that a graph and its subgraphs call, each once.
func callsIn(g *Graph, functions map[functionKey]*Function) []*Function {
	var fs []*Function
	seen := map[*Function]bool{}
	g.Walk(func(g *Graph) {
		for _, n := range g.Nodes {
			if c := functions[keyOf(n.Domain, n.OpType, n.Overload)]; c != nil && !seen[c] {
				seen[c] = true
				fs = append(fs, c)
			}
		}
	})
	return fs
}

// called returns the functions that the main graph calls, directly or through others.
func (m *Model) called() map[*Function]bool {
	functions := m.functionsByKey()
	called := map[*Function]bool{}
	for queue := callsIn(m.Graph, functions); len(queue) > 0; {
		f := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if !called[f] {
			called[f] = true
			queue = append(queue, callsIn(f.Body, functions)...)
		}
	}
	return called
}
