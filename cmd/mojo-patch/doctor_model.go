package main

import (
	"fmt"
	"strings"

	"github.com/mojo-patch/mojo-patch/onnx"
	"github.com/mojo-patch/mojo-patch/rewrite"
	"github.com/mojo-patch/mojo-patch/rewrite/target"
	"github.com/spf13/cobra"
)

type modelFlags struct{ model, target string }

func (f *modelFlags) flags(c *cobra.Command) {
	c.Flags().StringVar(&f.model, "model", "",
		"a patched model: say which of its fused ops the targets with kernels of their own take")
	c.Flags().StringVar(&f.target, "target", "",
		"with --model: look at this target alone; exit with 1 when it leaves a fused op out")
	completeFile(c, "model", "onnx")
	completeValues(c, "target", fusedTargetNames, false)
}

// fusedTargets are the targets that take fused ops as they are.
func fusedTargets() []*target.Target {
	var list []*target.Target
	for _, t := range target.All() {
		if t.Device != "" {
			list = append(list, t)
		}
	}
	return list
}

func fusedTargetNames() []string {
	var names []string
	for _, t := range fusedTargets() {
		names = append(names, t.Name)
	}
	return names
}

// findings has a line for each target; wrong says that the one that was named leaves a fused op out.
func (f *modelFlags) findings(a *app) (list []finding, wrong bool, err error) {
	if f.model == "" {
		if f.target != "" {
			return nil, false, fmt.Errorf("--target is about --model, which is not given")
		}
		return nil, false, nil
	}
	targets := fusedTargets()
	if f.target != "" {
		t, err := target.Lookup(f.target)
		if err == nil && (t == nil || t.Device == "") {
			err = fmt.Errorf("%s takes no fused ops of the toolkit's own kernels; there are %s", f.target,
				strings.Join(fusedTargetNames(), ", "))
		}
		if err != nil {
			return nil, false, fmt.Errorf("--target: %w", err)
		}
		targets = []*target.Target{t}
	}
	m, err := a.read(f.model, onnx.AllowMissingData())
	if err != nil {
		return nil, false, err
	}
	defer m.Close()
	sites, err := rewrite.CheckFused(m, targets...)
	if err != nil {
		return nil, false, err
	}
	for i, t := range targets {
		line := f.finding(t, sites[i])
		wrong = wrong || f.target != "" && line.Error != ""
		list = append(list, line)
	}
	return list, wrong, nil
}

// finding counts what a target takes, and lists what it does not, by reason.
func (f *modelFlags) finding(t *target.Target, sites []rewrite.SiteReport) finding {
	open := map[string][]string{}
	var reasons []string
	taken := 0
	for _, s := range sites {
		if s.Status == rewrite.Fused {
			taken++
			continue
		}
		reason := s.Op + ": " + s.Reason
		if open[reason] == nil {
			reasons = append(reasons, reason)
		}
		open[reason] = append(open[reason], s.Node)
	}
	text := fmt.Sprintf("%s: it takes %d of %d fused ops", f.model, taken, len(sites))
	if len(reasons) == 0 {
		return finding{What: t.Name, Found: text}
	}
	for _, r := range reasons {
		nodes := open[r]
		text += fmt.Sprintf("\n%s, at %s", r, nodes[0])
		if len(nodes) > 1 {
			text += fmt.Sprintf(" and %d more", len(nodes)-1)
		}
	}
	return finding{What: t.Name, Error: text, Advice: "mojo-patch apply --target " + t.Name + " leaves these open",
		open: true, unusable: f.target == ""}
}
