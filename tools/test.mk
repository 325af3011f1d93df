# The steps of `make test` and of `make quick`.

# What the tests run with: the onnxruntime of `make fetch`, and the kernels built here.
TEST_ENV = MOJO_REQUIRE_ORT=1 ONNXRUNTIME_LIB="$$(cat $(FETCHED))" MOJO_OPS_LIBRARY="$(CURDIR)/$(LIBRARY)" \
	MOJO_ONNX_NODE_TESTS="$(CURDIR)/$(NODE_TESTS)" MOJO_PYTHON="$(CURDIR)/$(VENV)/bin/python" \
	PATH="$(dir $(CMAKE)):$$PATH"

# What the steps need is fetched and built first, side by side; then they run three at a time, since some of them wait
# as much as they work, the longest ones first. Ray gives up a process that answers late, so they make way for test-ray.
TEST_STEPS := test-kernels test-ranks test-go test-cuda test-cann test-zoo test-isa test-arm64 test-wheel \
	test-examples test-fetch check test-docs
TEST_NEEDS := all $(DEMO_LIBRARY) $(FETCHED) $(NODE_TESTS)/.done $(VENV)/.installed $(VENV)/.wheel $(NVCC_STAMP) \
	$(CANN_VENV)/.installed $(RAY_VENV)/.installed $(MPI)/mpich/.installed $(MPI)/openmpi/.installed
# They build in build/kernels: there one waits for the other.
ifdef STEPS
test-cann: | test-cuda
test-cuda: | test-ranks
endif

.PHONY: test-steps test-ray $(TEST_STEPS) test-quick

test-steps:
	@nice -n 3 $(MAKE) --no-print-directory $(TEST_STEPS)

# `make check` vets the tests too, with all that go vet knows. To link without what debuggers read takes half of the
# time. Small heaps are collected so often that it takes a third of the time: they may grow, up to a limit. Tests that
# measure the heap set the usual percentage.
GO_TEST = $(TEST_ENV) GOGC=1600 GOMEMLIMIT=1536MiB $(GO) test -vet=off -ldflags=-w
test-go: all $(FETCHED) $(NODE_TESTS)/.done $(VENV)/.installed ## the Go tests, those of the command line among them
	@echo "go test ./..."
	@$(GO_TEST) -timeout 20m $$($(GO) list ./... | grep -vE '/(onnx|reference)$$')
	@$(GO_TEST) -timeout 20m -v ./reference ./onnx >$(BUILD)/node-counts.log || \
		{ cat $(BUILD)/node-counts.log; exit 1; }
	@grep -E '^ok' $(BUILD)/node-counts.log
	@sed -nE 's/^.*_test\.go:[0-9]+: (node tests: [^;]*|[0-9]+ models of the ONNX node tests.*).*/\1/p' \
		$(BUILD)/node-counts.log | \
		awk '{ print } END { if (NR != 3) { print "the ONNX node tests did not run"; exit 1 } }'

# The scripts of the command line and the conversions, held against the standard's node tests, take as long as the rest.
LONG_TESTS := cmd/mojo-patch|rewrite/convert
# Each of these takes most of the time of its package. `make mutants` runs them, so they are not left to -short.
SLOW_TESTS := ^(TestBent|TestMutatedMixtures|TestRenderedBytes)$$
test-quick: all $(FETCHED) $(NODE_TESTS)/.done $(VENV)/.installed ## the Go tests that take little time
	@echo "go test -short"
	@$(GO_TEST) -short -skip '$(SLOW_TESTS)' -timeout 5m $$($(GO) list ./... | grep -vE '/($(LONG_TESTS))$$')

test-zoo: all $(FETCHED) ## patch the bundled models, run them in every way, and compare with PyTorch: build/zoo.md
	@echo "the bundled models, patched and run"
	@rm -f $(BUILD)/zoo.md; for d in models models/broken models/near models/toolchains; do \
		$(TEST_ENV) $(GO) run ./bench/zoo $$d >>$(BUILD)/zoo.md || { cat $(BUILD)/zoo.md; exit 1; }; \
		tail -1 $(BUILD)/zoo.md; done

test-kernels: all $(VENV)/.installed ## the kernels' own tests, with the sanitizers
	PATH="$(dir $(CMAKE)):$$PATH" fused/kernels/tests/run.sh $(BUILD)/kernels $(VENV)/bin/python

test-ranks: all $(FETCHED) $(VENV)/.installed | $(MPI)/mpich/.installed $(MPI)/openmpi/.installed ## ranks in processes
	@echo "collective ops between processes"
	@$(call logged,ranks,"$(CMAKE)" --build $(BUILD)/kernels --target mojo_ranks_test)
	@$(VENV)/bin/python fused/kernels/tests/ranks_test.py $(LIBRARY) $(BUILD)/kernels/mojo_ranks_test \
		$(MPI)/mpich $(MPI)/openmpi
	@$(TEST_ENV) $(VENV)/bin/python fused/kernels/tests/launchers_test.py $(BIN) models/llama-kv-dynamo-fp32.onnx \
		models/llama-kv-dynamo-fp32.npz $(MPI)/mpich $(MPI)/openmpi

# The loops of each instruction set have tests of their own (test-kernels): the last one that the machine has is tested
# whole, every form on the others.
test-isa: all $(VENV)/.installed ## the kernels through onnxruntime, on every instruction set that the machine has
	@tests=; for isa in $$(grep -qw avx512vl /proc/cpuinfo && echo avx512) $$(grep -om1 -w avx2 /proc/cpuinfo) \
		portable; do \
		echo "through onnxruntime, MOJO_CPU_ISA=$$isa"; \
		MOJO_CPU_ISA=$$isa $(VENV)/bin/python fused/kernels/tests/ort_test.py $(LIBRARY) --failfast $$tests || exit 1; \
		tests=EveryOpTest; \
	done

test-arm64: | $(CMAKE_STAMP) ## the kernels for Linux on arm64, in an emulator
	@PATH="$(dir $(CMAKE)):$$PATH" fused/kernels/tests/arm64.sh $(BUILD)/arm64

test-wheel: $(WHEEL_DONE) $(VENV)/.wheel ## the wheel in a fresh environment: the program, the module, a patched model
	@echo "the wheel"
	@$(VENV)/bin/python python/tests/test_wheel.py 2>$(BUILD)/wheel-test.log || { cat $(BUILD)/wheel-test.log; exit 1; }
	@tail -3 $(BUILD)/wheel-test.log | head -1

# Not a part of `make test`: it installs several Pythons' packages, torch among them, and writes models of gigabytes.
.PHONY: test-python-long bench-python
test-python-long: $(WHEEL_DONE) $(FETCHED) ## the wheel with more Pythons, over 2 GB, after each exporter, from source
	@$(PYTHON) python/tests/long.py $(PYTHON_STEPS)

bench-python: $(WHEEL_DONE) ## what the module costs beside the command
	@rm -rf $(BUILD)/python/bench && $(PYTHON) -m venv $(BUILD)/python/bench
	@$(BUILD)/python/bench/bin/python -m pip $(PIP_INSTALL) --no-deps $(WHEEL)/mojo_patch-*.whl
	@$(BUILD)/python/bench/bin/python python/tests/bench.py

test-examples: all $(DEMO_LIBRARY) $(FETCHED) $(VENV)/.installed ## the demo, and docs/examples
	@echo "the demo"
	@$(call logged,demo,$(TEST_ENV) MOJO_OPS_LIBRARY="$(CURDIR)/$(DEMO_LIBRARY)" tools/demo.sh)
	@grep -q "with kernels" $(BUILD)/demo.log || { echo "the demo ran no kernels"; exit 1; }
	@$(VENV)/bin/python docs/examples/ray/limits_test.py
	@$(TEST_ENV) docs/examples/test.sh

# A cluster of two nodes on the loopback addresses, which takes a while to start; its clients ask for a few seconds.
test-ray: all $(FETCHED) | $(RAY_VENV)/.installed ## docs/examples/ray: replicas, nodes and ranks die, nothing is lost
	@rm -rf $(BUILD)/ray && mkdir -p $(BUILD)/ray/bin && cp -R python/src/mojo_patch $(BUILD)/ray/
	@cp $(LIBRARY) $(BUILD)/ray/mojo_patch/ && ln -s $(abspath $(BIN)) $(BUILD)/ray/bin/
	@if [ -e $(RAY_VENV)/bin/serve ]; then echo "docs/examples/ray"; \
		$(RAY_VENV)/bin/python docs/examples/ray/openai_api_test.py && \
		$(TEST_ENV) PYTHONPATH=$(CURDIR)/$(BUILD)/ray $(RAY_VENV)/bin/python docs/examples/ray/soak.py \
			models/llama-kv-dynamo-fp32.onnx $(RAY_SOAK) && \
		$(TEST_ENV) PYTHONPATH=$(CURDIR)/$(BUILD)/ray $(RAY_VENV)/bin/python docs/examples/ray/soak.py \
			models/llama-kv-dynamo-fp32.onnx $(RAY_SOAK) --clients 8 --max-tokens 40 --ranks 2 --replicas 1; \
	else echo "docs/examples/ray: skipped, ray is not installed"; fi

test-fetch: all ## tools/fetch-onnxruntime.sh, and the program in the library of the npm package
	@tools/test-fetch.sh

# The Go tests compare the other generated documents.
test-docs: $(BIN) ## docs/targets/matrix.md is what the code writes
	@$(GO) run ./bench/targets models 2>/dev/null | diff -u docs/targets/matrix.md - || \
		{ echo "docs/targets/matrix.md is out of date: make docs"; exit 1; }

FUZZTIME ?= 20s
CALLS ?= 10000
SEED ?= 1
.PHONY: fuzz fuzz-go fuzz-kernels
fuzz: fuzz-kernels fuzz-go ## run every fuzz target for FUZZTIME (20s), and CALLS (10000) random calls of every kernel

fuzz-kernels: | $(CMAKE_STAMP) ## CALLS (10000) hostile calls of every op's CPU kernel under the sanitizers, from SEED
	@PATH="$(dir $(CMAKE)):$$PATH" fused/kernels/tests/fuzz.sh $(BUILD)/kernels --calls $(CALLS) --seed $(SEED)

fuzz-go:
	@for file in $$(grep -rlE '^func Fuzz' --include='*_test.go' .); do \
		for target in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' $$file); do \
			echo "$$(dirname $$file) $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$(dirname $$file) || exit 1; \
		done; \
	done

# Not a part of `make test`: about an hour. The sample is the same each time; what was tried before is not tried again
# (build/mutants).
MUTANTS ?= 200
.PHONY: mutants mutants-kernels
mutants: test-quick mutants-kernels ## change the code in MUTANTS (200) ways, one at a time: do the tests notice?
	@$(TEST_ENV) $(GO) run ./internal/mutants -n $(MUTANTS)

mutants-kernels: all $(VENV)/.installed ## plant faults in the CPU kernels: do their tests notice?
	@$(TEST_ENV) CMAKE="$(CMAKE)" $(GO) run ./internal/mutants -kernels
