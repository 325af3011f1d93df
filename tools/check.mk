# The steps of `make check`: formatting, vet and linters. What was checked is not checked again: Go, staticcheck and
# ruff keep caches of their own, and a stamp in build/check says which C++ and CUDA files clang-format has seen.
CHECKS := check-go check-elsewhere
.PHONY: $(CHECKS)

check-go: ## gofmt and go vet
	@bad="$$(gofmt -l $$(find . -name '*.go' -not -path './$(BUILD)/*'))"; \
		if [ -n "$$bad" ]; then echo "not formatted as gofmt does:"; echo "$$bad"; exit 1; fi
	$(GO) vet ./...

# Systems that nothing here runs on; the whole tree must compile for them without a C compiler.
ELSEWHERE := darwin/arm64 windows/amd64
check-elsewhere: ## go vet for other systems
	$(GO) run ./internal/vet $(ELSEWHERE)
