// Command spellings patches many spellings of every block, and models in which the meaning of one was changed, and
// prints how many are fused: `make spellings`.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/mojo-patch/mojo-patch/internal/spellings"
)

func main() {
	n := flag.Int("n", 300, "spellings and changes of each kind")
	first := flag.Uint64("first", 0, "the first seed")
	only := flag.String("kind", "", "kinds whose name holds this text")
	composed := flag.Bool("composed", false, "kinds composed of identities; a missed one is not a failure")
	verbose := flag.Int("v", 0, "print this many failures of each kind")
	flag.Parse()
	debug.SetGCPercent(400) // many small models: else a third of the time is GC
	var rates []*spellings.Rate
	var wait sync.WaitGroup
	limit := make(chan struct{}, runtime.NumCPU())
	kinds := spellings.Kinds()
	if *composed {
		kinds = spellings.Composed()
	}
	for _, k := range kinds {
		if !strings.Contains(k.Name, *only) {
			continue
		}
		rate := new(spellings.Rate)
		rates = append(rates, rate)
		wait.Go(func() {
			limit <- struct{}{}
			*rate = *spellings.Measure(k, *first, *n)
			<-limit
		})
	}
	wait.Wait()
	spellings.Table(os.Stdout, rates)
	failed := false
	for _, r := range rates {
		failed = failed || len(r.Failures) > 0 && (!*composed || r.Wrong+r.FusedChanges > 0)
		for _, f := range r.Failures[:min(*verbose, len(r.Failures))] {
			fmt.Fprintln(os.Stderr, f)
		}
	}
	if failed {
		os.Exit(1)
	}
}
