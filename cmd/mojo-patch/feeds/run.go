package feeds

import (
	"slices"
	"time"

	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/cli"
	"github.com/mojo-patch/mojo-patch/cmd/mojo-patch/session"
	"github.com/mojo-patch/mojo-patch/golden"
)

// RunCases fills in the outputs of the cases and returns each one's time in milliseconds: the median of the
// repetitions, without the first, which warms up, if there are several.
func RunCases(a *cli.App, r session.Runner, cases []golden.Case, repeat int) ([]float64, error) {
	step, end := a.Progress("case")
	defer end()
	times := make([]float64, len(cases))
	for i := range cases {
		var err error
		if cases[i], err = cases[i].Followed(cases[:i]); err != nil {
			return nil, err
		}
		var laps []float64
		for range repeat {
			start := time.Now()
			out, err := r.Run(cases[i].Inputs)
			if err != nil {
				return nil, err
			}
			laps = append(laps, cli.Milliseconds(start))
			cases[i].Outputs = out
		}
		if len(laps) > 1 {
			laps = laps[1:]
		}
		slices.Sort(laps)
		times[i] = laps[len(laps)/2]
		step(i+1, len(cases))
	}
	return times, nil
}
