# Thin wrappers around CMake. BUILD=DIR names another build directory, PREFIX and DESTDIR where to install.
BUILD ?= build
PREFIX ?= /usr/local
CMAKE_BUILD = @test -f $(BUILD)/build.ninja || cmake -S . -B $(BUILD) -G Ninja

.PHONY: all program test check fuzz tidy demo bench bundle format docs install package clean

# Installs nothing: says what is missing, and the command that installs it
all:
	@sh scripts/deps.sh --check build
	@$(MAKE) -s program

program:
	$(CMAKE_BUILD)
	@cmake --build $(BUILD) --target ferry

# All tests: most under ASan and UBSan, tests of arithmetic in the usual build, tests with threads under TSan too, each
# fuzz target for 20 s or 8 s, the format of the sources. Installs what is missing, and says so first.
test:
	@sh scripts/deps.sh test
	@cmake -S . -B $(BUILD) -G Ninja -DFERRY_ALL_CHECKS=ON
	@cmake --build $(BUILD)
	@sh scripts/run_tests.sh $(BUILD)

# After each change: format, structure and the quick tests, in the usual build alone
check:
	@sh scripts/deps.sh --check build
	$(CMAKE_BUILD)
	@cmake --build $(BUILD) --target all checks
	@sh scripts/run_tests.sh --quick $(BUILD)

# clang-tidy, and behind it clang's analyzer, which takes a quarter of an hour
tidy:
	$(CMAKE_BUILD)
	@sh scripts/tidy.sh $(BUILD)
	@sh scripts/tidy.sh $(BUILD) --deep

# Each fuzz target for SECONDS, or only NAMES, with what earlier runs found
SECONDS ?= 60
fuzz:
	@sh scripts/deps.sh --check test
	@cmake -S . -B $(BUILD)/fuzz -G Ninja -DFERRY_SANITIZE=fuzz -DCMAKE_C_COMPILER=$(CLANG)
	@cmake --build $(BUILD)/fuzz --target checks
	@sh scripts/fuzz.sh $(BUILD)/fuzz $(SECONDS) $(NAMES)
CLANG ?= clang

demo:
	@sh scripts/deps.sh build
	@$(MAKE) -s program
	@FERRY=$(abspath $(BUILD))/ferry sh scripts/demo.sh

# make bench NAME=...; without a name, what there is
NAME ?= list
bench: all
	@$(BUILD)/ferry bench $(NAME)

# For a machine with a GPU: build/ferry-bundle.tar.xz, to be unpacked there. Needs nvcc and takes a while.
bundle:
	@sh scripts/deps.sh --check build
	@sh scripts/bundle.sh

format:
	@git ls-files '*.c' '*.h' '*.cu' '*.cuh' | xargs clang-format -i

# The pages that the program writes: docs/reference/keys.md, the manual page, the completion of bash
docs: program
	@$(BUILD)/ferry help --markdown >docs/reference/keys.md
	@$(BUILD)/ferry help --man >docs/ferry.1
	@$(BUILD)/ferry help --completion >docs/ferry.bash

install: all
	@cmake --install $(BUILD) --prefix $(PREFIX)

# build/ferry_VERSION_ARCHITECTURE.deb, for `apt install ./FILE` on machines with this release of Debian or Ubuntu
package:
	@sh scripts/deps.sh package
	@$(MAKE) -s program
	@cd $(BUILD) && cpack

clean:
	@cmake -E rm -rf $(BUILD)
