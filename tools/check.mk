# The steps of `make check`: formatting, vet and linters. Nothing is checked twice: Go, staticcheck and ruff keep caches
# of their own, and a stamp in build/check tells which C++ and CUDA files clang-format has seen.
CHECKS := check-go check-elsewhere check-staticcheck check-cpp check-python check-width check-prose
.PHONY: format $(CHECKS)

check-go: ## gofmt and go vet
	@bad="$$(gofmt -l $$(find . -path './$(BUILD)' -prune -o -name '*.go' -print))"; \
		if [ -n "$$bad" ]; then echo "not formatted as gofmt does:"; echo "$$bad"; exit 1; fi
	$(GO) vet ./...

# These tools keep the syntax trees of the whole program, so collecting garbage rarely saves a quarter of their time and
# costs a fifth more memory.
GO_CHECK = GOGC=400 $(GO)
# Systems that nothing here runs on; the whole tree must compile for them without a C compiler.
ELSEWHERE := darwin/arm64 windows/amd64
check-elsewhere: ## go vet for other systems
	$(GO_CHECK) run ./internal/vet $(ELSEWHERE)

# Its own choice of checks, but for capital letters in errors: some begin with X, the name of an input.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
check-staticcheck: ## staticcheck
	$(GO_CHECK) run $(STATICCHECK) -checks inherit,-ST1005 ./...

CPP_FILES := $(shell find fused ort docs/examples/c -not -path '*/third_party/*' \
	\( -name '*.cc' -o -name '*.c' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \))
CPP_RULES := .clang-format $(VENV)/.check
check-cpp: $(BUILD)/check/clang-format ## clang-format, for C++, CUDA and C

$(BUILD)/check/clang-format: $(CPP_FILES) $(CPP_RULES)
	@mkdir -p $(@D)
	@echo "clang-format"
	@echo $(if $(filter $(CPP_RULES),$?),$(CPP_FILES),$?) | \
		xargs -n 16 -P $(JOBS) $(VENV)/bin/clang-format --dry-run -Werror || { echo "make format repairs it"; exit 1; }
	@touch $@

check-python: $(VENV)/.check ## ruff, for Python, and mypy, for the module that users import
	@$(VENV)/bin/ruff check --quiet
	@cd python && ../$(VENV)/bin/mypy --config-file mypy.ini --cache-dir ../$(BUILD)/mypy --no-error-summary

check-width: ## lines of code within 120 columns, of prose within 160
	@$(PYTHON) tools/check-width.py

check-prose: ## phrases that make comments, messages and documents hard to read
	@$(GO) run ./internal/prose

format: $(VENV)/.check ## format Go, C++, CUDA and C, and repair what ruff can
	@gofmt -w $$(find . -path './$(BUILD)' -prune -o -name '*.go' -print)
	@$(VENV)/bin/clang-format -i $(CPP_FILES)
	@$(VENV)/bin/ruff check --quiet --fix
