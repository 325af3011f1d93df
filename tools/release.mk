# `make release`: for each platform an archive and a wheel, with checksums and the list of what they are made of.
# Zig's compilers make what other platforms get. docs/install.md says what of it was run, and where.
# linux-x86_64-cuda is the wheel mojo-patch-cuda alone; nvcc takes longer than all the rest.
PLATFORMS ?= linux-x86_64 linux-x86_64-cuda linux-aarch64 windows-x86_64 macos-arm64
DIST := $(BUILD)/dist
RELEASE := $(BUILD)/release

# What Go, Zig, CMake and pip call a platform.
GO_linux-x86_64 := GOOS=linux GOARCH=amd64
GO_linux-aarch64 := GOOS=linux GOARCH=arm64
GO_windows-x86_64 := GOOS=windows GOARCH=amd64
GO_macos-arm64 := GOOS=darwin GOARCH=arm64
ZIG_linux-x86_64 := x86_64-linux-gnu.$(GLIBC)
ZIG_linux-aarch64 := aarch64-linux-gnu.$(GLIBC)
ZIG_windows-x86_64 := x86_64-windows-gnu
ZIG_macos-arm64 := aarch64-macos.12.0
CMAKE_linux-x86_64 := -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=x86_64
CMAKE_linux-aarch64 := -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64
CMAKE_windows-x86_64 := -DCMAKE_SYSTEM_NAME=Windows -DCMAKE_SYSTEM_PROCESSOR=AMD64
# The library's own name, which is the path of the build otherwise.
CMAKE_macos-arm64 := -DCMAKE_SYSTEM_NAME=Darwin -DCMAKE_SYSTEM_PROCESSOR=arm64 \
	-DCMAKE_BUILD_WITH_INSTALL_NAME_DIR=ON -DCMAKE_INSTALL_NAME_DIR=@rpath
LIBRARY_linux-x86_64 := libmojo_ops.so
LIBRARY_linux-aarch64 := libmojo_ops.so
LIBRARY_windows-x86_64 := mojo_ops.dll
LIBRARY_macos-arm64 := libmojo_ops.dylib
EXE_windows-x86_64 := .exe
# What a program of Go's links with on macOS, beside what Zig has.
STUBS := $(RELEASE)/macos-stubs
CC_macos-arm64 := -F$(CURDIR)/$(STUBS) -L$(CURDIR)/$(STUBS)
$(RELEASE)/macos-arm64/.done: $(STUBS)/.done

.PHONY: release test-release
release: $(PLATFORMS:%=$(RELEASE)/%/.done) $(MODULE_LICENSES) ## build/dist: archives, wheels, sdist, checksums, SBOM
	@$(PYTHON) tools/release.py $(DIST) $(RELEASE) $(PLATFORMS)

# The program and the library of a platform. The library for this machine's is the one that the tests ran.
$(RELEASE)/%/.done: $(GO_FILES) $(KERNEL_FILES) $(BUILD)/zig/.installed $(LIBRARY) | $(CMAKE_STAMP)
	@echo "building for $*"
	@mkdir -p $(@D)
	@CC="$(CURDIR)/$(ZIG) cc -target $(ZIG_$*) $(CC_$*)" $(GO_$*) CGO_ENABLED=1 \
		$(GO_BUILD) $(GIVEN) -o $(@D)/mojo-patch$(EXE_$*) ./cmd/mojo-patch
	@if [ "$*" = "linux-$(MACHINE)" ] && [ "$$(uname -s)" = Linux ]; then cp $(LIBRARY) $(@D)/; else \
		for tool in "c++ -target $(ZIG_$*)" ar; do \
			printf '#!/bin/sh\nexec "%s" -m ziglang %s "$$@"\n' "$(CURDIR)/$(BUILD)/zig/bin/python" "$$tool" \
				>$(@D)/$${tool%% *} && chmod +x $(@D)/$${tool%% *}; \
		done; \
		{ "$(CMAKE)" -S fused/kernels -B $(@D)/kernels $(CMAKE_$*) -DCMAKE_CXX_COMPILER="$(CURDIR)/$(@D)/c++" \
			-DCMAKE_CXX_COMPILER_LAUNCHER= \
			-DCMAKE_AR="$(CURDIR)/$(@D)/ar" \
			-DCMAKE_SHARED_LINKER_FLAGS=-s && \
		  "$(CMAKE)" --build $(@D)/kernels --target mojo_ops --parallel $(JOBS); } >$(@D)/kernels.log 2>&1 || \
			{ tail -30 $(@D)/kernels.log; exit 1; }; \
		cp $(@D)/kernels/$(LIBRARY_$*) $(@D)/; fi
	@touch $@

$(STUBS)/.done: tools/macos-stubs.py
	@$(PYTHON) $< $(@D) $$($(GO) env GOROOT) && touch $@

$(RELEASE)/linux-x86_64-cuda/.done: $(CUDA_LIBRARY)
	@mkdir -p $(@D) && cp $< $(@D)/ && touch $@

test-release: ## make release twice, in two clones, and compare the bytes
	@tools/test-release.sh
