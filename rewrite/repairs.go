package rewrite

import (
	"fmt"
	"strings"
)

// RepairReport is one site whose nodes fail for inputs that the op serves. A traced loop over the experts that tokens
// went to makes such nodes: how many there were is written into the file.
type RepairReport struct {
	Pattern string `json:"pattern"`
	Node    string `json:"node"`
	Text    string `json:"text"` // when the nodes fail
}

// repaired lists the fused sites that are repairs.
func repaired(sites []SiteReport) []RepairReport {
	var list []RepairReport
	for _, s := range sites {
		if s.Status == Fused && s.Check != nil && s.Check.Repairs != "" {
			list = append(list, RepairReport{s.Pattern, s.Node, s.Check.Repairs})
		}
	}
	return list
}

// writeRepairs writes how many sites were repaired, or with details what was wrong, those of one text together.
func (r *Report) writeRepairs(b *strings.Builder, details bool) {
	if len(r.Repairs) == 0 {
		return
	}
	if !details {
		fmt.Fprintf(b, "%-18s %s: for some inputs the nodes fail, the op for none\n", "repairs",
			plural(len(r.Repairs), "site"))
		return
	}
	var p places
	for _, x := range r.Repairs {
		p.add(fmt.Sprintf("repaired %s: %s", x.Pattern, x.Text), x.Node)
	}
	p.write(b)
}
