package tune

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrRefused is the error of a Time without a figure: the kernels lack the Config for these experts and tokens.
var ErrRefused = errors.New("the kernels do not support it")

// Time is the time of a call.
type Time struct {
	Micros float64
	Err    error
}

// Timer measures calls of the experts.
type Timer interface {
	// Time measures each of the configs with this many tokens, in turn.
	Time(tokens int64, configs []Config) ([]Time, error)
}

// Measured is the result for one number of tokens.
type Measured struct {
	Tokens int64 `json:"tokens"`
	// Tried is the number of supported configs.
	Tried int `json:"tried"`
	// Chosen is the time of a call, in microseconds, with the library's own choice. Best is the fastest config: the
	// library's choice, unless another is faster by more than twice the noise.
	Chosen float64 `json:"library_us"`
	Best   Entry   `json:"best"`
}

// noise is the relative difference between two measurements of one config.
const noise = 0.02

// DefaultTokens returns the default numbers of tokens in tables.
func DefaultTokens() []int64 { return []int64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096} }

// candidates lists all possible ways; the library refuses those that it lacks.
func candidates(format string) []Config {
	list := []Config{{Kernel: "few"}}
	splits := []int{0}
	if format == MXFP4 || format == FP8 {
		splits = append(splits, 1, 2, 4, 8)
	}
	for _, tile := range []int{8, 16, 32, 64, 128, 256} {
		list = append(list, Config{Kernel: "mma", BlockM: tile})
		for _, split := range splits {
			list = append(list, Config{Kernel: "wgmma", BlockM: tile, Split: split})
		}
	}
	return list
}

// Search measures every way through the experts with each number of tokens. It does not retry refused ways with more
// tokens. It calls done after each number. It returns an error if timer does, or if the library's own choice fails.
func Search(shape Shape, tokens []int64, timer Timer, done func(Measured)) (*Table, error) {
	table := &Table{Shape: shape, Entries: map[int64]Entry{}}
	left := candidates(shape.Format)
	for _, n := range slices.Compact(slices.Sorted(slices.Values(tokens))) {
		times, err := timer.Time(n, append([]Config{Auto}, left...))
		if err != nil {
			return nil, fmt.Errorf("%s, %d tokens: %w", shape, n, err)
		}
		if times[0].Err != nil {
			return nil, fmt.Errorf("%s, %d tokens, as the library chooses: %w", shape, n, times[0].Err)
		}
		m := Measured{Tokens: n, Chosen: times[0].Micros}
		m.Best = Entry{Auto, m.Chosen}
		var have []Config
		for i, c := range left {
			t := times[i+1]
			if errors.Is(t.Err, ErrRefused) {
				continue
			}
			if t.Err != nil {
				return nil, fmt.Errorf("%s, %d tokens, %s: %w", shape, n, c, t.Err)
			}
			have = append(have, c)
			if t.Micros < min(m.Best.Micros, (1-noise)*m.Chosen) {
				m.Best = Entry{c, t.Micros}
			}
		}
		if len(have) == 0 {
			return nil, fmt.Errorf("%s: the kernels have only one configuration for these experts, so no table is "+
				"needed", shape)
		}
		left, m.Tried = have, len(have)
		m.Best.Micros = math.Round(10*m.Best.Micros) / 10
		table.Entries[n] = m.Best
		done(m)
	}
	return table, nil
}
