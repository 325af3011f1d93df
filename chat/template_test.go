package chat

import "testing"

func TestSmolLM2(t *testing.T) {
	tmpl, err := Read("../models/smollm2")
	if err != nil {
		t.Fatal(err)
	}
	got, err := tmpl.Render([]Message{{Role: "user", Content: "Hi"}}, Options{AddGenerationPrompt: true})
	want := "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n" +
		"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
	if err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if tmpl.Tokens["eos_token"] != "<|im_end|>" {
		t.Errorf("tokens %v", tmpl.Tokens)
	}
}
