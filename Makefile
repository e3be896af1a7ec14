# Tallyman: one Makefile, no generated build system.
#
#   make            release binary build/tallyman
#   make run        set up the machine, build, start the server, load real data
#   make test       set up the machine, build every variant, run every suite
#   make unit       unit tests only        make V=asan unit    the same under ASan+UBSan
#   make test-clients                      real SDKs and a browser against the server
#   make bench W=W1 one workload against its peers
#   make power      power cuts and failing writes of a block device, under ext4 and XFS (as root)
#   make sabotage   builds with one protection removed each; all must be killed
#
# V picks the variant (release, asan, tsan, cov), CC the compiler, B the build folder.

V ?= release
B ?= build$(if $(filter-out release,$(V)),/$(V))
CC ?= cc
AR ?= ar
PREFIX ?= /usr/local

VERSION := 0.1.0
REVISION := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)

WARN := -Wall -Wextra -Werror -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes \
        -Wvla -Wcast-qual -Wswitch-enum -Wformat=2 -Wundef -Wpointer-arith
CFLAGS_release := -O2 -g -D_FORTIFY_SOURCE=2 -fstack-protector-strong
CFLAGS_asan := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
CFLAGS_tsan := -O1 -g -fsanitize=thread -fno-omit-frame-pointer
CFLAGS_cov := -O0 -g --coverage
CFLAGS_fuzz := -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
LDFLAGS_release := -Wl,-z,relro -Wl,-z,now
LDFLAGS_asan := -fsanitize=address,undefined
LDFLAGS_tsan := -fsanitize=thread
LDFLAGS_cov := --coverage
LDFLAGS_fuzz := -fsanitize=fuzzer,address,undefined
ifeq ($(V),fuzz)
CC := clang
endif

ALL_CFLAGS := -std=c17 -D_GNU_SOURCE $(WARN) $(CFLAGS_$(V)) -Isrc -pthread $(CFLAGS)
ALL_LDFLAGS := -pthread $(LDFLAGS_$(V)) $(LDFLAGS)
# BLAKE3: a system library where pkg-config finds one, else the official C and assembly, which Debian
# ships in librust-blake3-dev. The assembly picks its instructions at run time.
BLAKE3_DIR ?= $(lastword $(sort $(wildcard /usr/share/cargo/registry/blake3-*/c)))
BLAKE3_LIBS := $(shell pkg-config --libs libblake3 2>/dev/null)
ifeq ($(BLAKE3_LIBS),)
BLAKE3_NAMES := blake3 blake3_dispatch blake3_portable
ifeq ($(shell uname -m),x86_64)
BLAKE3_NAMES += blake3_sse2_x86-64_unix blake3_sse41_x86-64_unix blake3_avx2_x86-64_unix \
                blake3_avx512_x86-64_unix
else
BLAKE3_CFLAGS := -DBLAKE3_USE_NEON=0
endif
BLAKE3_OBJ := $(patsubst %,$(B)/obj/blake3/%.o,$(BLAKE3_NAMES))
BLAKE3_CFLAGS += -I$(BLAKE3_DIR)
endif

LIBS := $(BLAKE3_LIBS) -lcrypto -lhttp_parser -lcurl -lsqlite3 -lzstd -lz -ldl

# One short line a step; VERBOSE=1 shows the commands.
Q := $(if $(VERBOSE),,@)
say = $(if $(VERBOSE),,@printf '  %-5s %s\n' $(1) $(2))

# Layers, lowest first. A layer may include only itself and those before it (tests/tidy checks).
LAYERS := base os json journal store net http engine sink door main
TEST_LAYERS := $(LAYERS)

layer_src = $(filter-out src/main/tallyman.c src/engine/tallyman_engine.c,$(sort $(shell find src/$(1) -name '*.c' 2>/dev/null)))
layer_obj = $(patsubst src/%.c,$(B)/obj/%.o,$(call layer_src,$(1)))
upto = $(if $(filter $(1),$(firstword $(2))),$(firstword $(2)),$(firstword $(2)) $(call upto,$(1),$(wordlist 2,99,$(2))))
reverse = $(if $(1),$(call reverse,$(wordlist 2,99,$(1))) $(firstword $(1)))
# Archives of a layer and everything below it, highest first, as the linker wants them.
libs_for = $(foreach l,$(call reverse,$(call upto,$(1),$(LAYERS))),$(if $(call layer_src,$(l)),$(B)/lib/$(l).a))

.PHONY: all
all: $(B)/tallyman $(B)/tallyman-engine

define layer_rules
$(B)/lib/$(1).a: $(call layer_obj,$(1)) $(if $(filter base,$(1)),$(BLAKE3_OBJ))
	@mkdir -p $$(@D)
	@rm -f $$@
	$$(call say,AR,$$@)
	$$(Q)$(AR) rcs $$@ $$^
endef
$(foreach l,$(LAYERS),$(eval $(call layer_rules,$(l))))

$(B)/obj/%.o: src/%.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c $< -o $@

$(B)/obj/base/blake3.o: ALL_CFLAGS += $(BLAKE3_CFLAGS)
$(B)/obj/blake3/%.o: $(BLAKE3_DIR)/%.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) -std=c17 -O2 -g -w $(filter -fsanitize=address%,$(CFLAGS_$(V))) $(BLAKE3_CFLAGS) -c $< -o $@
$(B)/obj/blake3/%.o: $(BLAKE3_DIR)/%.S $(B)/flags
	@mkdir -p $(@D)
	$(call say,AS,$@)
	$(Q)$(CC) -c $< -o $@

$(B)/obj/tests/%.o: tests/%.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -I. -MMD -MP -c $< -o $@

# A changed compiler or flag rebuilds everything.
$(B)/flags: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' '$(CC) $(ALL_CFLAGS)' | cmp -s - $@ || printf '%s\n' '$(CC) $(ALL_CFLAGS)' >$@
.PHONY: FORCE
FORCE:

# A new commit is a new revision.
$(B)/revision: FORCE
	@mkdir -p $(@D)
	@echo '$(VERSION) $(REVISION)' | cmp -s - $@ || echo '$(VERSION) $(REVISION)' >$@
$(B)/obj/main/version.o: $(B)/revision
$(B)/obj/main/version.o: ALL_CFLAGS += -DTALLYMAN_VERSION='"$(VERSION)"' -DTALLYMAN_REVISION='"$(REVISION)"'

$(B)/tallyman: $(B)/obj/main/tallyman.o $(call libs_for,main)
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $(B)/obj/main/tallyman.o $(call libs_for,main) $(ALL_LDFLAGS) $(LIBS)

# The analytics engine's process. It loads libchdb at run time: nothing of it is needed to build.
# libchdb brings an allocator of its own and dies under a sanitizer, so that the sanitizers' variants
# get the plain program (its parts are under the sanitizers in the unit tests).
ifneq ($(filter asan tsan fuzz,$(V)),)
$(B)/tallyman-engine: FORCE
	$(Q)$(MAKE) -s V=release B=$(B)/plain $(B)/plain/tallyman-engine
	@mkdir -p $(@D)
	@cmp -s $(B)/plain/tallyman-engine $@ || cp $(B)/plain/tallyman-engine $@
else
ENGINE_LIBS := $(foreach l,engine http json os base,$(B)/lib/$(l).a)
$(B)/tallyman-engine: $(B)/obj/engine/tallyman_engine.o $(ENGINE_LIBS)
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $(B)/obj/engine/tallyman_engine.o $(ENGINE_LIBS) $(ALL_LDFLAGS) $(LIBS)
endif

# ---- unit tests: tests/unit/LAYER/test_NAME.c links LAYER and below, tests/lib and cmocka ----
# told replaces malloc: from the archive it would get into every program.
TOLD_OBJ := $(B)/obj/tests/lib/told.o
TESTLIB_OBJ := $(filter-out $(TOLD_OBJ),$(patsubst tests/%.c,$(B)/obj/tests/%.o,$(sort $(wildcard tests/lib/*.c))))
# An archive, so that a test of a low layer does not drag in what it does not use.
TESTLIB := $(B)/lib/testlib.a
$(TESTLIB): $(TESTLIB_OBJ)
	@mkdir -p $(@D)
	@rm -f $@
	$(call say,AR,$@)
	$(Q)$(AR) rcs $@ $^

UNIT_SRC := $(sort $(wildcard tests/unit/*/test_*.c))
UNIT_BIN := $(patsubst tests/unit/%.c,$(B)/unit/%,$(UNIT_SRC))

define unit_rules
$(B)/unit/$(1)/%: $(B)/obj/tests/unit/$(1)/%.o $(TESTLIB) $(call libs_for,$(1))
	@mkdir -p $$(@D)
	$$(call say,LINK,$$@)
	$$(Q)$(CC) -o $$@ $$(filter %.o,$$^) $(TESTLIB) $(call libs_for,$(1)) $$(ALL_LDFLAGS) $(LIBS) -lcmocka -lm
endef
$(foreach l,$(TEST_LAYERS),$(eval $(call unit_rules,$(l))))

$(foreach t,$(UNIT_BIN),$(if $(findstring told,$(notdir $(t))),$(t))): $(TOLD_OBJ)

# This one is its own libchdb: the library's calls are looked up in the program.
$(B)/unit/engine/test_front: ALL_LDFLAGS += -rdynamic

.PHONY: unit
unit: $(UNIT_BIN)
	@scripts/run-unit $(UNIT_BIN)

.SECONDARY:

# ---- crash tests and fuzz targets: whole-program C tests over the model disk ----
CRASH_BIN := $(patsubst tests/crash/%.c,$(B)/crash/%,$(sort $(wildcard tests/crash/crash_*.c)))
$(B)/crash/%: $(B)/obj/tests/crash/%.o $(TESTLIB) $(call libs_for,store)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $< $(TESTLIB) $(call libs_for,store) $(ALL_LDFLAGS) $(LIBS) -lm

FUZZ_BIN := $(patsubst tests/fuzz/fuzz_%.c,$(B)/fuzz/%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))
$(B)/fuzz/%: $(B)/obj/tests/fuzz/fuzz_%.o $(call libs_for,main)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $< $(call libs_for,main) $(ALL_LDFLAGS) $(LIBS)

# ---- benchmarks' own programs ----
BENCH_BIN := $(patsubst bench/%.c,$(B)/bench/%,$(sort $(wildcard bench/*.c)))
$(B)/obj/bench/%.o: bench/%.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -I. -MMD -MP -c $< -o $@
$(B)/bench/%: $(B)/obj/bench/%.o $(call libs_for,store)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) -o $@ $< $(call libs_for,store) $(ALL_LDFLAGS) $(LIBS) $(BENCH_LIBS_$*) -lm

# What measures a higher layer links it too.
BENCH_LIBS_encodebench = $(call libs_for,sink) $(LIBS)
BENCH_LIBS_drainbench = $(call libs_for,sink) $(LIBS)
$(B)/bench/encodebench $(B)/bench/drainbench: $(call libs_for,sink)
BENCH_LIBS_headcost = $(call libs_for,door) $(LIBS)
$(B)/bench/headcost: $(call libs_for,door)

# ---- power cuts: the recording block device, a plugin of nbdkit ----
$(B)/power/recorder.so: tests/power/recorder.c $(B)/flags
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) -std=c17 -D_GNU_SOURCE -O2 -g $(WARN) $(CFLAGS) -fPIC -shared -o $@ $<

# The engine's library goes along where scripts/engine has fetched it.
ENGINE_LIBRARY := $(B)/engine/node_modules/@chdb/lib-linux-x64-gnu/libchdb.so
.PHONY: install
install: $(B)/tallyman $(B)/tallyman-engine
	install -D -m 0755 $(B)/tallyman $(DESTDIR)$(PREFIX)/bin/tallyman
	install -D -m 0755 $(B)/tallyman-engine $(DESTDIR)$(PREFIX)/bin/tallyman-engine
	@if [ -f $(ENGINE_LIBRARY) ]; then \
	    install -D -m 0644 $(ENGINE_LIBRARY) $(DESTDIR)$(PREFIX)/lib/tallyman/libchdb.so; \
	fi

.PHONY: run test test-clients bench sabotage power tidy clean format
run:
	@scripts/run
test:
	@scripts/test
test-clients:
	@scripts/test-clients
bench:
	@scripts/bench $(W)
sabotage:
	@scripts/sabotage
power: $(B)/tallyman $(B)/power/recorder.so
	@TALLYMAN=$(B)/tallyman RECORDER=$(B)/power/recorder.so scripts/power
tidy:
	@scripts/tidy
format:
	clang-format -i $$(git ls-files '*.c' '*.h')
clean:
	rm -rf build

-include $(shell find $(B) -name '*.d' 2>/dev/null)
