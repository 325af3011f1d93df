package onnx

import (
	"container/heap"
	"fmt"
	"slices"
)

// Sort sorts Nodes topologically and moves as little as possible: among ready nodes, the earliest comes first. It
// returns an error for a cycle that names a node on it.
func (g *Graph) Sort() error {
	for i, n := range g.Nodes {
		n.position = i
	}
	if g.isSorted() {
		return nil
	}
	waiting := make([]int, len(g.Nodes))
	readers := make([][]int, len(g.Nodes))
	for i, n := range g.Nodes {
		for _, v := range n.reads(nil) {
			p := g.producerPosition(v)
			if p < 0 {
				continue
			}
			if p == i {
				return fmt.Errorf("node %q (%s) reads its own output %q", n.Name, n.OpType, v.Name)
			}
			waiting[i]++
			readers[p] = append(readers[p], i)
		}
	}
	ready := &intHeap{}
	for i, w := range waiting {
		if w == 0 {
			*ready = append(*ready, i)
		}
	}
	heap.Init(ready)
	out := make([]*Node, 0, len(g.Nodes))
	for ready.Len() > 0 {
		i := heap.Pop(ready).(int)
		out = append(out, g.Nodes[i])
		for _, r := range readers[i] {
			if waiting[r]--; waiting[r] == 0 {
				heap.Push(ready, r)
			}
		}
	}
	if len(out) < len(g.Nodes) {
		n := g.onCycle(waiting)
		return fmt.Errorf("graph %q has a cycle through node %q (%s)", g.Name, n.Name, n.OpType)
	}
	g.Nodes = out
	return nil
}

// isSorted reports whether every node comes after its producers.
func (g *Graph) isSorted() bool {
	var read []*Value
	for i, n := range g.Nodes {
		read = n.reads(read[:0])
		if slices.ContainsFunc(read, func(v *Value) bool { return g.producerPosition(v) >= i }) {
			return false
		}
	}
	return true
}

// producerPosition returns the index in Nodes of the node that writes v, -1 if v comes from elsewhere.
func (g *Graph) producerPosition(v *Value) int {
	n := v.Producer
	if n == nil || n.Graph != g || n.position >= len(g.Nodes) || g.Nodes[n.position] != n {
		return -1
	}
	return n.position
}

// onCycle finds a node on a cycle: following waiting producers from any waiting node leads around.
func (g *Graph) onCycle(waiting []int) *Node {
	i := slices.IndexFunc(waiting, func(w int) bool { return w > 0 })
	seen := map[int]bool{}
	for !seen[i] {
		seen[i] = true
		for _, v := range g.Nodes[i].reads(nil) {
			if p := g.producerPosition(v); p >= 0 && waiting[p] > 0 {
				i = p
				break
			}
		}
	}
	return g.Nodes[i]
}

// reads appends the values that the node reads, also in its subgraphs.
func (n *Node) reads(vs []*Value) []*Value {
	for _, v := range n.Inputs {
		if v != nil {
			vs = append(vs, v)
		}
	}
	for _, s := range n.Subgraphs() {
		for _, m := range s.Nodes {
			vs = m.reads(vs)
		}
		vs = append(vs, s.Outputs...)
	}
	return vs
}

type intHeap []int

func (h intHeap) Len() int           { return len(h) }
func (h intHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h intHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *intHeap) Push(x any)        { *h = append(*h, x.(int)) }
func (h *intHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
