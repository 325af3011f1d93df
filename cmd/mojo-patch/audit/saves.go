package audit

import (
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/registry"
)

// movers are the ops that only change types, layouts and shapes.
var movers = []string{"Cast", "CastLike", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Expand", "Concat", "Slice",
	"Split"}

// savedOp counts the nodes of an op, or all nodes, before and after patching.
type savedOp struct {
	Op     string `json:"op"`
	Before int    `json:"before"`
	After  int    `json:"after"`
}

// patchingSaves patches the model in memory and counts the nodes that move data, and all nodes, before and after.
func patchingSaves(a *cli.App, path, provider string) ([]savedOp, error) {
	m, err := a.Read(path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	list := make([]savedOp, len(movers)+1)
	countMovers(m, list, func(s *savedOp) *int { return &s.Before })
	request := rewrite.Request{AssumeAvailable: true, Version: cli.Version()}
	if device, ok := session.KernelDevices[provider]; ok && provider != session.ProviderCPU {
		b, err := registry.ParseBackend("+" + string(device) + ",CPU")
		if err != nil {
			return nil, err
		}
		request.Backend = b
	}
	p, err := rewrite.New(request)
	if err != nil {
		return nil, err
	}
	if _, err := p.Run(m); err != nil {
		return nil, err
	}
	countMovers(m, list, func(s *savedOp) *int { return &s.After })
	kept := []savedOp{}
	for _, s := range list {
		if s.Before+s.After > 0 {
			kept = append(kept, s)
		}
	}
	return kept, nil
}

func countMovers(m *onnx.Model, list []savedOp, count func(*savedOp) *int) {
	for i, op := range movers {
		list[i].Op = op
	}
	all := &list[len(movers)]
	all.Op = "all"
	m.Graph.Walk(func(g *onnx.Graph) {
		for _, n := range g.Nodes {
			*count(all)++
			for i, op := range movers {
				if n.Is(op) {
					*count(&list[i])++
				}
			}
		}
	})
}
