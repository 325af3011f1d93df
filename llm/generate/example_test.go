package generate_test

import (
	"context"
	"fmt"
	"log"

	"github.com/mojo-patch/mojo-patch/llm/generate"
	"github.com/mojo-patch/mojo-patch/ort"
)

// Two prompts are computed together, and their tokens arrive step by step. With a tokenizer, Options.NewStream turns
// tokens into text:
//
//	NewStream: func() generate.TextStream { return tokenizer.Stream(true) }
func ExampleGenerator_Start() {
	g, err := generate.Open("testdata/positions-fp32.onnx", ort.WithThreads(1))
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	run, err := g.Start(generate.Options{MaxTokens: 2}, []int64{9, 3, 77, 120, 8, 31, 64}, []int64{101})
	if err != nil {
		log.Fatal(err)
	}
	for token, err := range run.Tokens(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("prompt %d: %d\n", token.Prompt, token.ID)
	}
	for _, s := range run.Sequences() {
		fmt.Println(s.IDs, s.Stop)
	}
	// Output:
	// prompt 0: 147
	// prompt 1: 117
	// prompt 0: 74
	// prompt 1: 117
	// [147 74] max tokens
	// [117 117] max tokens
}
